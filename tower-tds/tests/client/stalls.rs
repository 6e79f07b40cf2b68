//! A call that hangs in any stage ends at its deadline, and sends nothing after it. The simulator
//! is connected by pipes, under paused time.

use std::{
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Uri};
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tds_sim::{Config, DataFault, Delay, Faults, Scripted, Sim, TokenFault, When};
use tokio::{
    io::{DuplexStream, duplex},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{ServiceExt, service_fn as connector};
use tower_tds::{
    Client, Credentials, Kind, Limits, Quota,
    layers::errors::{GiveUp, Sent},
};

/// A connection in this process.
pub(crate) struct Pipe(
    pub(crate) TokioIo<DuplexStream>,
    pub(crate) fn() -> Connected,
);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        (self.1)()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Where a call hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Token,
    Permit,
    InFlight,
    Socket,
    Head,
    ErrorBody,
    Body,
}

/// A client of the simulator whose data connections are never made if `no_socket`.
fn client(sim: &Sim, limits: Limits, no_socket: bool) -> Client {
    let sim_of = sim.clone();
    let pipes = connector(move |target: Uri| {
        let sim = sim_of.clone();
        async move {
            if no_socket && target.host() == Some("data.example.org") {
                return pending().await;
            }
            let (here, there) = duplex(64 * 1024);
            tokio::spawn(async move {
                let _counted = sim.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
                let answer = service_fn(|request: Request<Incoming>| sim.clone().oneshot(request));
                let there = TokioIo::new(there);
                drop(http1::Builder::new().serve_connection(there, answer).await);
            });
            Ok::<_, io::Error>(Pipe(TokioIo::new(here), Connected::new))
        }
    });
    let credentials = Credentials::new(sim.client_id(), sim.client_secret()).expect("usable");
    let (auth, data) = ("https://auth.example.org", "https://data.example.org");
    let client = Client::builder(auth, data, credentials).limits(limits);
    client.connector(pipes).build().expect("a connector")
}

const TWO: Duration = Duration::from_secs(2);
const HOURS: Duration = Duration::from_secs(100_000);

fn faults(place: Place) -> Faults {
    let mut faults = Faults::default();
    match place {
        Place::Token => {
            let slow = TokenFault::Slow(HOURS);
            faults.token.push(Scripted::new(slow, When::Always));
        }
        Place::Head => faults.before_head = Delay::Constant(HOURS),
        Place::ErrorBody | Place::Body | Place::InFlight => {
            let stall = DataFault::Stall(HOURS);
            faults.data.push(Scripted::new(stall, When::Always));
        }
        Place::Permit | Place::Socket => {}
    }
    faults
}

#[tokio::test(start_paused = true)]
async fn call_hanging_in_any_stage_ends_at_its_deadline() {
    for (place, kind, sent, waited) in [
        (
            Place::Token,
            Kind::Timeout,
            Sent::Never,
            "a token from https://auth.example.org",
        ),
        (Place::Permit, Kind::Timeout, Sent::Never, "the rate limit"),
        (
            Place::InFlight,
            Kind::Timeout,
            Sent::Never,
            "another response body to end",
        ),
        (Place::Socket, Kind::Timeout, Sent::Never, "a connection"),
        (Place::Head, Kind::Timeout, Sent::Unknown, "response"),
        (Place::ErrorBody, Kind::NotFound, Sent::Answered, ""),
        (
            Place::Body,
            Kind::Timeout,
            Sent::Answered,
            "the rest of the body",
        ),
    ] {
        let sim = Sim::new(Config::default());
        let limits = match place {
            Place::Permit => Limits::new(Quota::new(NonZeroU32::MIN, HOURS).expect("long")),
            Place::InFlight => Limits::default().in_flight(NonZeroU32::MIN),
            _ => Limits::default(),
        };
        let client = client(&sim, limits, place == Place::Socket);
        if place != Place::Token {
            client.tokens().ready().await.expect("a token");
        }
        sim.set_faults(faults(place));
        // The token request took the only permit. This call takes the only place in flight.
        let before = match place {
            Place::InFlight => Some(client.get("/v1/live/bus").await.expect("a head")),
            _ => None,
        };
        let calls = sim.ledger().summary().data_calls;
        let path = match place {
            Place::ErrorBody => "/no/such/thing",
            _ => "/v1/live/bus",
        };
        let start = Instant::now();
        let call = async { client.get(path).deadline(TWO).await?.bytes().await };
        let error = call.await.expect_err("it hangs");
        let is_told = error
            .to_string()
            .contains("read or drop the bodies of earlier responses");
        assert_eq!(is_told, place == Place::InFlight, "{error}");
        assert!(start.elapsed() <= TWO, "{place:?}: {:?}", start.elapsed());
        assert_eq!(
            (error.kind(), error.sent()),
            (kind, sent),
            "{place:?}: {error}"
        );
        if kind == Kind::Timeout {
            assert_eq!(start.elapsed(), TWO, "{place:?}");
            assert_eq!(error.gave_up(), Some(GiveUp::Deadline), "{place:?}");
            let waited_for = error.waited_for().unwrap_or_default();
            assert!(waited_for.contains(waited), "{place:?}: {waited_for}");
        }
        drop(before);
        let sent = u64::from(error.sent() != Sent::Never);
        sleep(Duration::from_secs(60)).await;
        let seen = sim.ledger().summary().data_calls;
        assert_eq!(
            seen,
            calls + sent,
            "{place:?}: nothing is sent after the deadline"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_call_costs_its_permits_only_if_it_was_sent() {
    for (place, sent) in [(Place::Socket, 0), (Place::Head, 1)] {
        let sim = Sim::new(Config::default());
        let client = client(&sim, Limits::default(), place == Place::Socket);
        client.tokens().ready().await.expect("a token");
        sim.set_faults(faults(place));
        // The permit of the token request is back by then.
        sleep(TWO).await;
        let call = timeout(TWO, client.get("/v1/live/bus"));
        call.await.map(drop).expect_err("it hangs");
        let live = || client.limiter().snapshot().live;
        assert_eq!(live(), sent, "{place:?}");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(sim.ledger().summary().data_calls, sent, "{place:?}");
        assert_eq!(live(), 0, "{place:?}");
    }
}

/// The network is cut: three calls hang, and the server does not see the end of their sockets. They
/// fail after a second, and from then on the cut is over.
#[tokio::test(start_paused = true)]
async fn cut_costs_all_sockets_for_30_seconds_after_the_answer_timeout_at_most() {
    let sim = Sim::new(Config::default());
    let is_cut = Arc::<AtomicBool>::default();
    let (sim_of, cut) = (sim.clone(), Arc::clone(&is_cut));
    let pipes = connector(move |_: Uri| {
        let (here, there) = duplex(64 * 1024);
        let (sim, is_cut) = (sim_of.clone(), cut.load(SeqCst));
        tokio::spawn(async move {
            if is_cut {
                let _open = there;
                return pending().await;
            }
            let answer = service_fn(|request: Request<Incoming>| sim.clone().oneshot(request));
            let there = TokioIo::new(there);
            drop(http1::Builder::new().serve_connection(there, answer).await);
        });
        std::future::ready(Ok::<_, io::Error>(Pipe(TokioIo::new(here), Connected::new)))
    });
    let credentials = Credentials::new(sim.client_id(), sim.client_secret()).expect("usable");
    let (auth, data) = ("https://auth.example.org", "https://data.example.org");
    let limits = Limits::default().connections(NonZeroU32::new(4).expect("four"));
    let client = Client::builder(auth, data, credentials).limits(limits);
    let client = client.answer_timeout(TWO / 2).connector(pipes).build();
    let client = client.expect("a connector");
    client.tokens().ready().await.expect("a token");
    is_cut.store(true, SeqCst);
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..6 {
        let call = client.get("/v1/live/bus").into_future();
        calls.spawn(async move { call.await.map(|_| start.elapsed()) });
    }
    sleep(TWO / 2).await;
    is_cut.store(false, SeqCst);
    let ended = calls.join_all().await;
    let first = ended.into_iter().flatten().min().expect("a success");
    assert!(first <= Duration::from_secs(31 + 1), "{first:?}");
    assert!(sim.ledger().summary().data_calls > 0);
}
