//! A call that hangs in any stage ends at its deadline, and sends nothing after it. The simulator
//! is connected by pipes, under paused time.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{StatusCode, Uri};
use tds_sim::{Config, Faults, Sim};
use tokio::time::{Instant, sleep, timeout};
use tower_tds::{
    Builder, Client, Kind, Limits, Quota,
    layers::errors::{GiveUp, Sent},
};

use crate::client::{
    raw::{Act, Raw},
    world::{
        Built as _, PATH, at_once, connector, count, credentials, faults, https, pipe_to, read,
    },
};

/// Where a call hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Token,
    Permit,
    InFlight,
    Socket,
    Head,
    /// A token that was refused, while there is no other.
    Refused,
    ErrorBody,
    Body,
}

/// A client of the simulator, whose data connections are never made if `no_socket`, and lead nowhere in a cut.
fn builder(sim: &Sim, no_socket: bool, is_cut: &Arc<AtomicBool>) -> Builder {
    let (serves, is_cut) = (sim.clone(), Arc::clone(is_cut));
    let pipes = connector(move |target: Uri| {
        let (sim, is_cut) = (serves.clone(), is_cut.load(SeqCst));
        async move {
            if no_socket && target.host() == Some("data.example.org") {
                return pending().await;
            }
            if is_cut {
                return Ok(Raw::of(|_| vec![Act::Hang]).pipe());
            }
            Ok(pipe_to(&sim))
        }
    });
    https(credentials(sim)).connector(pipes)
}

fn client(sim: &Sim, limits: Limits, no_socket: bool) -> Client {
    let builder = builder(sim, no_socket, &Arc::default());
    builder.limits(limits).built()
}

const FOR_A_TOKEN: &str = "a token from https://auth.example.org";
const TWO: Duration = Duration::from_secs(2);
const HOURS: Duration = Duration::from_secs(100_000);

fn hangs(place: Place) -> Faults {
    match place {
        Place::Token | Place::Refused => faults(&["token=slow:100000s"]),
        Place::Head => faults(&["head=100000s"]),
        Place::ErrorBody | Place::Body | Place::InFlight => faults(&["data=stall:100000s"]),
        Place::Permit | Place::Socket => faults(&[]),
    }
}

#[tokio::test(start_paused = true)]
async fn call_hanging_in_any_stage_ends_at_its_deadline() {
    let (late, never) = (Kind::Timeout, Sent::Never);
    for (place, kind, sent, waited) in [
        (Place::Token, late, never, FOR_A_TOKEN),
        (Place::Permit, late, never, "the rate limit"),
        (Place::InFlight, late, never, "another response body to end"),
        (Place::Socket, late, never, "a connection"),
        (Place::Head, late, Sent::Unknown, "response"),
        (Place::Refused, Kind::InvalidToken, Sent::Answered, "token"),
        (Place::ErrorBody, Kind::NotFound, Sent::Answered, ""),
        (Place::Body, late, Sent::Answered, "the rest of the body"),
    ] {
        let sim = Sim::new(Config::default());
        let limits = match place {
            Place::Permit => Limits::new(Quota::new(count(1), HOURS).expect("long")),
            Place::InFlight => Limits::default().in_flight(count(1)),
            _ => Limits::default(),
        };
        let client = client(&sim, limits, place == Place::Socket);
        if place != Place::Token {
            client.tokens().ready().await.expect("a token");
        }
        if place == Place::Refused {
            read(client.get(PATH)).await.expect("data");
            sleep(Duration::from_secs(60)).await;
            sim.revoke_all();
        }
        sim.set_faults(hangs(place));
        // The token request took the only permit. This call takes the only slot in flight.
        let before = match place {
            Place::InFlight => Some(client.get(PATH).await.expect("a head")),
            _ => None,
        };
        let calls = sim.ledger().summary().data_calls;
        let path = match place {
            Place::ErrorBody => "/no/such/thing",
            _ => PATH,
        };
        let start = Instant::now();
        let error = read(client.get(path).deadline(TWO)).await;
        let error = error.expect_err("it hangs");
        let told = "read or drop the bodies of earlier responses";
        let is_told = error.to_string().contains(told);
        assert_eq!(is_told, place == Place::InFlight, "{error}");
        assert!(start.elapsed() <= TWO, "{place:?}: {:?}", start.elapsed());
        let ended = (error.kind(), error.sent());
        assert_eq!(ended, (kind, sent), "{place:?}: {error}");
        if place != Place::ErrorBody {
            // A refusal is returned just before the deadline.
            let early = TWO - start.elapsed();
            let is_refusal = early < TWO / 100 && error.status() == Some(StatusCode::UNAUTHORIZED);
            assert!(early.is_zero() || is_refusal, "{place:?}: {early:?}");
            assert!(error.is_timeout() && error.is_retryable(), "{place:?}");
            assert_eq!(error.gave_up(), Some(GiveUp::Deadline), "{place:?}");
            let waited_for = error.waited_for().unwrap_or_default();
            assert!(waited_for.contains(waited), "{place:?}: {waited_for}");
        }
        drop(before);
        let sent = u64::from(error.sent() != Sent::Never);
        sleep(Duration::from_secs(60)).await;
        let seen = sim.ledger().summary().data_calls;
        assert_eq!(seen, calls + sent, "{place:?}: nothing is sent after it");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_call_costs_its_permits_only_if_it_was_sent() {
    for (place, sent) in [(Place::Socket, 0), (Place::Head, 1)] {
        let sim = Sim::new(Config::default());
        let client = client(&sim, Limits::default(), place == Place::Socket);
        client.tokens().ready().await.expect("a token");
        sim.set_faults(hangs(place));
        // The permit of the token request is back by then.
        sleep(TWO).await;
        let call = timeout(TWO, client.get(PATH));
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
async fn cut_costs_all_sockets_for_30_seconds_after_the_response_timeout_at_most() {
    let (sim, is_cut) = (Sim::new(Config::default()), Arc::default());
    let limits = Limits::default().connections(count(4));
    let client = builder(&sim, false, &is_cut).limits(limits);
    let client = client.response_timeout(TWO / 2).built();
    client.tokens().ready().await.expect("a token");
    is_cut.store(true, SeqCst);
    let start = Instant::now();
    let calls = (0..6).map(|_| {
        let call = client.get(PATH);
        Box::pin(async move { call.await.map(|_| start.elapsed()) }) as _
    });
    let ends = async {
        sleep(TWO / 2).await;
        is_cut.store(false, SeqCst);
    };
    let (ended, ()) = tokio::join!(at_once(calls), ends);
    let first = ended.into_iter().flatten().min().expect("a success");
    assert!(first <= Duration::from_secs(31 + 1), "{first:?}");
    assert!(sim.ledger().summary().data_calls > 0);
}
