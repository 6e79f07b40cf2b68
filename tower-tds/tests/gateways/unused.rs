//! Sockets that close without a request. HAProxy counts each as a request if it counts from the
//! connection on: its log shows `CR`.
//!
//! A pool makes them: it begins a connect and takes a socket that is returned meanwhile. The socket
//! of the connect stays unused until the pool's idle timeout, which closes all of them together.
//!
//! The long runs take two minutes:
//! `cargo test --release -p tower-tds-tests --test gateways unused -- --ignored --nocapture`

use std::{net::SocketAddr, time::Duration};

use http::{HeaderValue, Request, Uri, header::AUTHORIZATION};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tds_sim::Server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{interval, sleep},
};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_tds::{
    Client, Credentials, Limiter, Limits, RequestBody,
    layers::limits::{self, ConnectionLimitLayer, RequestLimitLayer, Rules},
};

use crate::{
    gateway::{Gateway, Kind},
    load::{self, Caller, Load},
    program::say,
    scenario::{Scenario, Way},
};

/// Both ways of counting.
const BOTH: [Kind; 2] = [Kind::Haproxy, Kind::HaproxyFromConnection];

/// The status of one request on a socket of its own.
async fn status(gateway: SocketAddr) -> String {
    let mut socket = TcpStream::connect(gateway).await.expect("it listens");
    let request = format!("GET / HTTP/1.1\r\nHost: {gateway}\r\n\r\n");
    socket
        .write_all(request.as_bytes())
        .await
        .expect("a socket");
    let mut status = [0; "HTTP/1.1 200".len()];
    socket.read_exact(&mut status).await.expect("an answer");
    String::from_utf8_lossy(&status[9..]).into_owned()
}

#[tokio::test]
async fn haproxy_counts_a_socket_that_closes_without_a_request() {
    for (kind, counts) in BOTH.into_iter().zip([false, true]) {
        let Some((_service, gateway)) = kind.start().await else {
            return;
        };
        // All at once, because the gateway's window is a second.
        let address = gateway.address();
        let mut sockets = JoinSet::new();
        for _ in 0..50 {
            sockets.spawn(async move {
                let mut socket = TcpStream::connect(address).await.expect("it listens");
                socket.shutdown().await.expect("an open socket");
                // Its end follows the count, behind a 400.
                socket.read_to_end(&mut Vec::new()).await.expect("an end");
            });
        }
        sockets.join_all().await;
        let is_refused = status(gateway.address()).await == "423";
        assert_eq!(is_refused, counts, "{kind:?}");
    }
}

/// A stack that sends a whole quota at once, and whose pool closes idle sockets after two seconds.
fn pooled(service: &Server, _: SocketAddr) -> impl Caller + use<> {
    let token = service.sim().token(service.client_id()).expect("a token");
    let token = HeaderValue::try_from(format!("Bearer {token}")).expect("a header");
    let limiter = Limiter::new(Limits::default().rules(Rules::window().counter()));
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(slow(CONNECTS));
    let http: legacy::Client<_, RequestBody> = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(2))
        .build(connector);
    ServiceBuilder::new()
        .map_err(|error: limits::Error| format!("{error}: {:?}", std::error::Error::source(&error)))
        .layer(RequestLimitLayer::new(limiter))
        .map_request(move |mut request: Request<RequestBody>| {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
            request
        })
        .service(http)
}

/// A TCP connector whose connects take that much longer, as with a handshake.
fn slow(
    connects: Duration,
) -> impl tower::Service<
    Uri,
    Response = <HttpConnector as tower::Service<Uri>>::Response,
    Error = <HttpConnector as tower::Service<Uri>>::Error,
    Future: Send,
> + Clone
+ Send
+ Sync {
    service_fn(move |to: Uri| {
        Box::pin(async move {
            let socket = HttpConnector::new().oneshot(to).await;
            sleep(connects).await;
            socket
        })
    })
}

/// Calls that go on, and whether each was answered.
type Calls = JoinSet<Result<u16, String>>;

fn call(calls: &mut Calls, client: &impl Caller, front: SocketAddr) {
    let url = format!("http://{front}/v1/history/small?bytes=100");
    let request = Request::get(url).body(RequestBody::default());
    let response = client.clone().oneshot(request.expect("a request"));
    calls.spawn(async {
        let response = response.await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await;
        body.map(|_| status).map_err(|error| error.to_string())
    });
}

/// Makes so many calls a second for so long.
async fn steadily(
    calls: &mut Calls,
    client: &impl Caller,
    front: SocketAddr,
    rate: u32,
    lasts: Duration,
) {
    let gap = Duration::from_secs(1) / rate;
    let mut ticks = interval(gap);
    for _ in 0..(lasts.as_millis() / gap.as_millis()) {
        ticks.tick().await;
        call(calls, client, front);
    }
}

/// Asserts that the gateway has refused none of the calls. Returns its count of unused sockets.
async fn none_refused(gateway: &Gateway, calls: Calls, what: &str) -> usize {
    let calls = calls.join_all().await;
    let log = gateway.log(calls.len()).await;
    let unused = gateway.unused();
    say(&format!(
        "{what}: {} x 200, {} x 423, {unused} sockets closed without a request",
        log.count(200),
        log.count(423)
    ));
    assert_eq!((log.count(423), log.count(416)), (0, 0), "{what}");
    assert!(calls.iter().all(|call| *call == Ok(200)), "{calls:?}");
    unused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_quick_runs_through_haproxy_are_refused_nothing() {
    let mut runs = JoinSet::new();
    for kind in [BOTH; 3].concat() {
        let scenario = Scenario {
            gateway: kind,
            load: Load::Small,
            way: Way::Calm,
            calls: 300,
        };
        runs.spawn(scenario.run());
    }
    for seen in runs.join_all().await.into_iter().flatten() {
        seen.assert_nothing_refused();
    }
}

/// Two bursts leave a surplus of sockets: the second one is answered on those of the first while its
/// own connects go on. Then calls go on at a steady rate, while the idle timeout closes the surplus.
async fn surplus(kind: Kind) -> Option<usize> {
    let (service, gateway) = kind.start().await?;
    let front = gateway.address();
    let client = pooled(&service, front);
    let mut calls = Calls::new();
    for _ in 0..2 {
        for _ in 0..25 {
            call(&mut calls, &client, front);
        }
        sleep(CONNECTS * 2 / 3).await;
    }
    let lasts = Duration::from_secs(5);
    steadily(&mut calls, &client, front, 40, lasts).await;
    Some(none_refused(&gateway, calls, &format!("a surplus at {kind:?}")).await)
}

const CONNECTS: Duration = Duration::from_millis(300);

#[tokio::test]
#[ignore = "HAProxy and its caller need the machine for themselves: see .ci/slow"]
async fn surplus_of_slow_connects_is_closed_without_a_refusal() {
    for kind in BOTH {
        let Some(unused) = surplus(kind).await else {
            return;
        };
        // Otherwise there was nothing to refuse.
        assert!(unused > 10, "{unused}");
    }
}

/// Makes 50 calls a second, and then 20.
async fn steady<C: Caller>(
    kind: Kind,
    seconds: [u64; 2],
    client: impl FnOnce(&Server, SocketAddr) -> C,
) {
    let Some((service, gateway)) = kind.start().await else {
        return;
    };
    let front = gateway.address();
    let client = client(&service, front);
    let mut calls = Calls::new();
    for (rate, lasts) in [50, 20].into_iter().zip(seconds) {
        let lasts = Duration::from_secs(lasts);
        steadily(&mut calls, &client, front, rate, lasts).await;
    }
    none_refused(&gateway, calls, &format!("{kind:?} {seconds:?}")).await;
}

/// The assembled client, with its idle timeout of 30 s.
fn client(service: &Server, front: SocketAddr) -> Client {
    let credentials = Credentials::new(service.client_id(), service.client_secret());
    Client::builder(
        service.auth_url(),
        &format!("http://{front}"),
        credentials.expect("the simulator's are usable"),
    )
    .loopback_http()
    .connector(slow(CONNECTS))
    .build()
    .expect("loopback is let through")
}

#[tokio::test]
#[ignore = "70 s; see the head of this file"]
async fn the_whole_client_closes_its_unused_sockets_without_a_refusal() {
    let mut runs = JoinSet::new();
    for kind in BOTH {
        runs.spawn(steady(kind, [10, 60], client));
    }
    runs.join_all().await;
}

#[tokio::test]
#[ignore = "60 s; see the head of this file"]
async fn the_whole_client_is_refused_nothing_at_twenty_calls_a_second() {
    let mut runs = JoinSet::new();
    for kind in BOTH {
        runs.spawn(steady(kind, [0, 60], load::client));
    }
    runs.join_all().await;
}
