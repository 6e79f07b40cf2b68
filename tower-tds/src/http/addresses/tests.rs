use std::{
    collections::HashMap,
    future::pending,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{DuplexStream, duplex},
    time::{Instant, pause, sleep},
};
use tower::{Layer as _, service_fn};
use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits};

use super::*;

/// How an address answers.
#[derive(Clone, Copy)]
enum Way {
    Answers,
    Refuses,
    /// Drops each packet, so that the connect times out after ten seconds.
    Dead,
}
use Way::{Answers, Dead, Refuses};

/// The addresses of a host, and the attempts in order: after how many milliseconds each began.
#[derive(Clone)]
struct Host {
    ways: Arc<HashMap<IpAddr, Way>>,
    addresses: Arc<Vec<SocketAddr>>,
    tried: Arc<Mutex<Vec<(u128, String)>>>,
    start: Instant,
}

impl Host {
    fn of(ways: &[(&str, Way)]) -> Self {
        let ways = ways
            .iter()
            .map(|(address, way)| (address.parse().expect("one"), *way));
        let addresses = ways
            .clone()
            .map(|(address, _): (IpAddr, _)| (address, 0).into());
        Self {
            addresses: Arc::new(addresses.collect()),
            ways: Arc::new(ways.collect()),
            tried: Arc::default(),
            start: Instant::now(),
        }
    }

    fn connector(
        &self,
        limiter: &Limiter,
    ) -> impl Service<Uri, Response: Send, Error = BoxError, Future: Send> + Clone + Send + use<>
    {
        let host = self.clone();
        let one = service_fn(move |target: Target| {
            let host = host.clone();
            async move { host.connect(target?).await }
        });
        let addresses = Arc::clone(&self.addresses);
        let resolver = service_fn(move |name: Name| {
            let found = (*addresses).clone().into_iter();
            let is_known = name.as_str() == "data.example.org";
            async move { is_known.then_some(found).ok_or(io::Error::other("unknown")) }
        });
        let limited = ConnectionLimitLayer::new(limiter.clone()).layer(one);
        Addresses::with_resolver(limited, resolver)
    }

    async fn connect(&self, target: Uri) -> io::Result<TokioIo<DuplexStream>> {
        let after = self.start.elapsed().as_millis();
        let authority = target.authority().expect("one").as_str().to_owned();
        let address: SocketAddr = authority.parse().expect("one");
        assert_eq!(address.port(), 443);
        let tried = (after, address.ip().to_string());
        self.tried.lock().expect("no panic").push(tried);
        match self.ways[&address.ip()] {
            Answers => Ok(TokioIo::new(duplex(64).0)),
            Refuses => Err(io::ErrorKind::ConnectionRefused.into()),
            Dead => {
                sleep(Duration::from_secs(10)).await;
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// The attempts since the last look.
    fn tried(&self) -> Vec<(u128, String)> {
        mem::take(&mut self.tried.lock().expect("no panic"))
    }
}

fn limiter(connections: u32) -> Limiter {
    let connections = NonZeroU32::new(connections).expect("not zero");
    Limiter::new(Limits::default().connections(connections))
}

const URI: &str = "https://data.example.org";

async fn connect(
    connector: &(impl Service<Uri, Response: Send, Error = BoxError, Future: Send> + Clone + Send),
) -> Result<(), BoxError> {
    let connected = connector.clone().oneshot(Uri::from_static(URI));
    connected.await.map(drop)
}

fn at(times: &[(u128, &str)]) -> Vec<(u128, String)> {
    let times = times.iter();
    times.map(|(at, to)| (*at, (*to).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn dead_addresses_cost_250_ms_each_refused_ones_nothing_and_families_alternate() {
    let (one, two, three, four) = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4");
    let (long, longer) = ("2001:db8::1", "2001:db8::2");
    for (ways, times) in [
        (
            &[(one, Dead), (two, Answers)][..],
            &[(0, one), (250, two)][..],
        ),
        (&[(one, Refuses), (two, Answers)], &[(0, one), (0, two)]),
        (
            &[(one, Dead), (two, Dead), (three, Dead), (four, Answers)],
            &[(0, one), (250, two), (500, three), (750, four)],
        ),
        (
            &[(long, Dead), (longer, Dead), (one, Dead), (two, Answers)],
            &[(0, long), (250, one), (500, longer), (750, two)],
        ),
    ] {
        let host = Host::of(ways);
        let connector = host.connector(&limiter(60));
        connect(&connector).await.expect("the last one answers");
        assert_eq!(host.tried(), at(times));
    }
}

#[tokio::test(start_paused = true)]
async fn last_error_is_returned_when_no_address_answers() {
    let host = Host::of(&[("10.0.0.1", Dead), ("10.0.0.2", Refuses)]);
    let limiter = limiter(60);
    let error = connect(&host.connector(&limiter)).await;
    let error = error.expect_err("none answers");
    let error = error.downcast::<io::Error>().expect("the connector's");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(host.start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn race_goes_on_only_with_a_permit_that_is_free() {
    let host = Host::of(&[("10.0.0.1", Dead), ("10.0.0.2", Answers)]);
    // One of the two is for tokens.
    let connector = host.connector(&limiter(2));
    connect(&connector).await.expect("the second answers");
    // The permit of a connect that timed out is kept for a second.
    assert_eq!(host.tried(), at(&[(0, "10.0.0.1"), (11_000, "10.0.0.2")]));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_holds_a_permit_and_losers_return_theirs_like_cancelled_connects() {
    let host = Host::of(&[
        ("10.0.0.1", Dead),
        ("10.0.0.2", Dead),
        ("10.0.0.3", Answers),
    ]);
    let limiter = limiter(60);
    let connector = host.connector(&limiter);
    let call = tokio::spawn(async move { connector.oneshot(Uri::from_static(URI)).await });
    sleep(Duration::from_millis(400)).await;
    assert_eq!(limiter.snapshot().connections, 2);
    let socket = call.await.expect("no panic").expect("the third answers");
    assert_eq!(limiter.snapshot().connections, 3);
    // A cancelled connect has a second more, and its permit another one.
    sleep(Duration::from_millis(2_100)).await;
    assert_eq!(limiter.snapshot().connections, 1);
    drop(socket);
}

#[tokio::test(start_paused = true)]
async fn unknown_host_returns_its_permit_at_once() {
    let (host, limiter) = (Host::of(&[]), limiter(60));
    for unknown in ["https://unknown.example.org", URI] {
        let uri = Uri::from_static(unknown);
        let connected = host.connector(&limiter).oneshot(uri).await;
        connected.map(drop).expect_err("it has no address");
        assert_eq!(limiter.snapshot().connections, 0);
    }
}

#[tokio::test]
async fn address_in_the_uri_is_not_looked_up() {
    pause();
    let resolver = service_fn(|_: Name| pending::<io::Result<std::vec::IntoIter<SocketAddr>>>());
    for (uri, address) in [
        ("http://[::1]:8080/x", "[::1]:8080"),
        ("http://127.0.0.1", "127.0.0.1:80"),
        ("https://127.0.0.1", "127.0.0.1:443"),
    ] {
        let found = look_up(resolver, &Uri::from_static(uri)).await;
        let found = found.expect("an address");
        assert_eq!(found, [address.parse().expect("an address")]);
    }
}
