use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{DuplexStream, duplex},
    time::{Instant, sleep},
};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits};

use super::*;

/// The behaviour of an address.
#[derive(Clone, Copy)]
enum Way {
    Answers,
    Refuses,
    /// Drops each packet, so that the connect times out after ten seconds.
    Dead,
}
use Way::{Answers, Dead, Refuses};

/// The attempts in order: after how many milliseconds each began, and to which address.
type Tried = Vec<(u128, String)>;

/// Races these addresses of a host with permits of the limiter. Also returns the attempts.
async fn connect(
    ways: &[(&str, Way)],
    limiter: &Limiter,
) -> (Result<impl Send + use<>, BoxError>, Tried) {
    let ways = ways.iter().map(|(address, way)| {
        let address: IpAddr = address.parse().expect("an address");
        (address, *way)
    });
    let addresses = ways.clone().map(|(address, _)| (address, 443).into());
    let (ways, tried) = (
        Arc::new(ways.collect::<HashMap<_, _>>()),
        Arc::<Mutex<Tried>>::default(),
    );
    let (log, start) = (Arc::clone(&tried), Instant::now());
    let one = service_fn(move |target: Target| {
        let target = target.expect("it was found");
        let authority = target.authority().expect("one").as_str();
        let address: SocketAddr = authority.parse().expect("one");
        let tried = (start.elapsed().as_millis(), address.ip().to_string());
        log.lock().expect("no panic").push(tried);
        let way = ways[&address.ip()];
        async move {
            match way {
                Answers => Ok::<_, io::Error>(TokioIo::<DuplexStream>::new(duplex(64).0)),
                Refuses => Err(io::ErrorKind::ConnectionRefused.into()),
                Dead => {
                    sleep(Duration::from_secs(10)).await;
                    Err(io::ErrorKind::TimedOut.into())
                }
            }
        }
    });
    let mut first = ConnectionLimitLayer::new(limiter.clone()).layer(one);
    let others = first.clone();
    first.ready().await.expect("a permit");
    let connected = race(first, others, addresses.collect()).await;
    let tried = mem::take(&mut *tried.lock().expect("no panic"));
    (connected, tried)
}

fn limiter(connections: u32) -> Limiter {
    let connections = NonZeroU32::new(connections).expect("not zero");
    Limiter::new(Limits::default().connections(connections))
}

fn at(times: &[(u128, &str)]) -> Tried {
    let times = times.iter();
    times.map(|(at, to)| (*at, (*to).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn dead_addresses_cost_250_ms_each_refused_ones_nothing_and_families_alternate() {
    let (one, two, three, four) = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4");
    let (long, longer) = ("2001:db8::1", "2001:db8::2");
    for (ways, times) in [
        (
            &[(one, Refuses), (two, Answers)][..],
            &[(0, one), (0, two)][..],
        ),
        (
            &[(one, Dead), (two, Dead), (three, Dead), (four, Answers)],
            &[(0, one), (250, two), (500, three), (750, four)],
        ),
        (
            &[(long, Dead), (longer, Dead), (one, Dead), (two, Answers)],
            &[(0, long), (250, one), (500, longer), (750, two)],
        ),
    ] {
        let (connected, tried) = connect(ways, &limiter(60)).await;
        connected.map(drop).expect("the last one answers");
        assert_eq!(tried, at(times));
    }
}

#[tokio::test(start_paused = true)]
async fn last_error_is_returned_when_no_address_answers() {
    let start = Instant::now();
    let ways = [("10.0.0.1", Dead), ("10.0.0.2", Refuses)];
    let (connected, _) = connect(&ways, &limiter(60)).await;
    let error = connected.map(drop).expect_err("none answers");
    let error = error.downcast::<io::Error>().expect("the connector's");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn race_goes_on_only_with_a_permit_that_is_free() {
    // One of the two is for tokens.
    let ways = [("10.0.0.1", Dead), ("10.0.0.2", Answers)];
    let (connected, tried) = connect(&ways, &limiter(2)).await;
    connected.map(drop).expect("the second answers");
    // The permit of a connect that timed out is kept for a second.
    assert_eq!(tried, at(&[(0, "10.0.0.1"), (11_000, "10.0.0.2")]));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_holds_a_permit_and_losers_return_theirs_like_cancelled_connects() {
    let limiter = limiter(60);
    let ways = [
        ("10.0.0.1", Dead),
        ("10.0.0.2", Dead),
        ("10.0.0.3", Answers),
    ];
    let (connected, _) = connect(&ways, &limiter).await;
    let socket = connected.expect("the third answers");
    assert_eq!(limiter.snapshot().connections, 3);
    // A cancelled connect has a second more, and its permit another one.
    sleep(Duration::from_millis(2_100)).await;
    assert_eq!(limiter.snapshot().connections, 1);
    drop(socket);
}

#[tokio::test]
async fn address_in_the_uri_keeps_its_port_or_gets_that_of_its_scheme() {
    for (uri, address) in [
        ("http://[::1]:8080/x", "[::1]:8080"),
        ("http://127.0.0.1", "127.0.0.1:80"),
        ("https://127.0.0.1", "127.0.0.1:443"),
    ] {
        let found = look_up(&Uri::from_static(uri)).await;
        let address: SocketAddr = address.parse().expect("an address");
        assert_eq!(found.expect("it needs no lookup"), [address]);
    }
}
