//! Sockets as a server sees them, through the hyper-util client.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

mod abandoned;
mod contention;
mod cut;
mod ends;
mod leaks;
mod listen;
pub(crate) mod net;
mod refusals;
mod reset;
mod server;
mod share;
mod tls;
mod upgrade;

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::{net::TcpStream, task::JoinSet, time::Instant};
use tokio_test::task;
use tower::{Layer, Service, ServiceExt};
use tower_tds_limits::{
    ConnectionLimit, ConnectionLimitLayer, Error, Limiter, Limits, Quota, RequestLimit,
    RequestLimitLayer, Rules,
};

use self::{
    net::{Net, NetClient, net_client, warm},
    server::Server,
};

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

/// Limits whose quota is never reached.
fn no_quota() -> Limits {
    Limits::new(Quota::per_second(count(1_000_000))).rules(Rules::window())
}

/// Limits of this many data connections and requests in flight.
fn limiter(most: u32) -> Limiter {
    let limits = no_quota().connections(with_token(most));
    Limiter::new(limits.in_flight(count(most)))
}

fn limited<S>(limiter: &Limiter, service: S) -> RequestLimit<S> {
    RequestLimitLayer::new(limiter.clone()).layer(service)
}

/// Returns the limit that leaves this many connections to data.
fn with_token(data: u32) -> NonZeroU32 {
    count(if data == 1 { 1 } else { data + 1 })
}

fn client(limiter: &Limiter) -> Client<ConnectionLimit<HttpConnector>, Empty<Bytes>> {
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn get<S, B>(mut service: S, uri: Uri) -> Result<Bytes, String>
where
    S: Service<Request<Empty<Bytes>>, Response = http::Response<B>>,
    S::Error: std::fmt::Debug,
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let request = Request::get(uri).body(Empty::new()).expect("a request");
    let ready = service.ready().await.map_err(|e| format!("{e:?}"))?;
    let response = ready.call(request).await.map_err(|e| format!("{e:?}"))?;
    let body = response.into_body().collect().await;
    Ok(body.map_err(|e| format!("{e:?}"))?.to_bytes())
}

/// Waits for sockets, which are closed in the background.
pub(crate) async fn all_permits_back(limiter: &Limiter) {
    while limiter.snapshot().connections > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_server_never_sees_more_sockets_than_the_limit() {
    let server = Server::start().await;
    let limiter = limiter(10);
    let service = limited(&limiter, client(&limiter));
    let mut calls = JoinSet::new();
    for _ in 0..500 {
        calls.spawn(get(service.clone(), server.uri()));
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), server::BODY);
    }
    assert_eq!(server.requests(), 500);
    assert!(server.peak_sockets() <= 10, "{}", server.peak_sockets());
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_timed_out_keeps_its_permit_for_a_second() {
    let timing_out = tower::service_fn(async |_: Uri| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Err::<TokioIo<TcpStream>, _>(timed_out)
    });
    let limiter = limiter(1);
    let connector =
        ConnectionLimitLayer::new(limiter.clone()).layer(timing_out.map_future(Box::pin));
    let failed = connector.oneshot(Uri::from_static("http://a")).await;
    failed.map(drop).expect_err("it timed out");
    assert_eq!(limiter.snapshot().connections, 1);
    tokio::time::sleep(Duration::from_millis(999)).await;
    assert_eq!(limiter.snapshot().connections, 1);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(limiter.snapshot().connections, 0);
}

#[tokio::test]
async fn a_refused_connect_gives_its_permit_back() {
    let nobody = Server::start().await.stop().await;
    let limiter = limiter(1);
    let client = client(&limiter);
    for _ in 0..3 {
        let error = get(client.clone(), nobody.clone())
            .await
            .expect_err("nobody listens");
        assert!(error.contains("Connect"), "{error}");
    }
    assert_eq!(limiter.snapshot().connections, 0);
}

#[tokio::test(start_paused = true)]
async fn a_connect_waits_for_its_permit_for_35_seconds_at_most() {
    let limiter = limiter(1);
    let hanging = tower::service_fn(|_: Uri| {
        std::future::pending::<Result<TokioIo<TcpStream>, std::io::Error>>()
    });
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(hanging);
    let first = tokio::spawn(connector.clone().oneshot(Uri::from_static("http://a")));
    tokio::task::yield_now().await;
    let second = connector.oneshot(Uri::from_static("http://b")).await;
    let error = second.expect_err("the one permit is held");
    let error = error.downcast_ref::<Error>().expect("the limit's own");
    assert!(error.is_timeout());
    first.abort();
    assert!(first.await.expect_err("aborted").is_cancelled());
    // The server has a second to accept it.
    tokio::time::sleep(Duration::from_millis(999)).await;
    assert_eq!(limiter.snapshot().connections, 1, "it may yet be accepted");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(limiter.snapshot().connections, 0);
}

#[tokio::test]
async fn permit_is_held_until_a_slow_server_closes() {
    let server = Server::start().await;
    server.close_slowly();
    let limiter = limiter(1);
    get(client(&limiter), server.uri())
        .await
        .expect("an answer");
    // After the drop of the client, its socket has ended on this side only.
    let next = tokio::spawn(get(client(&limiter), server.uri()));
    server.seen_ends(1).await;
    // A permit that is given back too early would be back by then.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(limiter.snapshot().connections, 1);
    assert_eq!(limiter.snapshot().connects_waiting, 1);

    server.close_at_once();
    next.await.expect("no panic").expect("an answer");
    assert_eq!(server.peak_sockets(), 1);
}

/// The recipe in the documentation of `ConnectionLimit`.
#[tokio::test(start_paused = true)]
async fn sockets_idle_for_five_seconds_move_to_another_host() {
    let net = Net::of(["a", "b"]);
    let connector = ConnectionLimitLayer::new(limiter(4)).layer(net.clone());
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(5))
        .build(connector);
    warm(&client, net.server("a"), 4).await;
    let before = Instant::now();
    let body = get(client, net.server("b").uri()).await;
    assert_eq!(body.expect("there is room"), server::BODY);
    let took = before.elapsed().as_secs();
    assert!((5..=11).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn token_request_gets_a_socket_when_data_uses_its_share() {
    let net = Net::of(["a", "tokens"]);
    let limiter = limiter(3);
    let (data, a) = (net_client(&net, &limiter), net.server("a"));
    let mut calls = JoinSet::new();
    for _ in 0..5 {
        calls.spawn(get(data.clone(), a.at("/late")));
    }
    a.seen_requests(3).await;
    let tokens = net_client(&net, &limiter.first_in_line());
    let token = get(tokens, net.server("tokens").uri()).await;
    token.expect("there is room");
    assert_eq!((a.requests(), a.open_sockets()), (3, 3));
    a.release();
    for body in calls.join_all().await {
        body.expect("every call is answered");
    }
    assert_eq!(a.peak_sockets(), 3);
}

#[tokio::test(start_paused = true)]
async fn token_request_passes_first_at_a_limit_of_one() {
    let net = Net::of(["a", "tokens"]);
    let limiter = limiter(1);
    let connector = |limiter| ConnectionLimitLayer::new(limiter).layer(net.clone());
    // Neither client keeps an idle socket.
    let unpooled = |limiter| -> NetClient {
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_max_idle_per_host(0).build(connector(limiter))
    };
    let (data, tokens) = (unpooled(limiter.clone()), unpooled(limiter.first_in_line()));
    let a = net.server("a");
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        calls.spawn(get(data.clone(), a.at("/late")));
    }
    a.seen_requests(1).await;
    let endpoint = net.server("tokens");
    let token = tokio::spawn(get(tokens, endpoint.at("/late")));
    while limiter.snapshot().connects_waiting < 3 {
        tokio::task::yield_now().await;
    }
    a.release();
    endpoint.seen_requests(1).await;
    assert_eq!(a.requests(), 1, "two still wait");
    endpoint.release();
    token.await.expect("no panic").expect("an answer");
    for body in calls.join_all().await {
        body.expect("every call is answered");
    }
}

#[tokio::test(start_paused = true)]
async fn token_request_finds_a_place_while_the_socket_of_another_one_is_closing() {
    let net = Net::of(["tokens"]);
    let (limiter, endpoint) = (limiter(3), net.server("tokens"));
    endpoint.close_slowly();
    for sockets in 1..=3 {
        let tokens = net_client(&net, &limiter.first_in_line());
        let before = Instant::now();
        let token = get(tokens, endpoint.uri()).await;
        token.expect("any place serves a token request");
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(limiter.snapshot().connections, sockets);
    }
}

#[tokio::test(start_paused = true)]
async fn connect_that_is_not_polled_loses_its_turn() {
    let net = Net::of(["a"]);
    let connector = ConnectionLimitLayer::new(limiter(1)).layer(net.clone());
    let mut readied = connector.clone();
    readied.ready().await.expect("there is a permit");
    let connect = || connector.clone().oneshot(net.server("a").uri());
    let mut unpolled = task::spawn(connect());
    assert!(unpolled.poll().is_pending());
    let next = tokio::spawn(connect());
    tokio::task::yield_now().await;
    let before = Instant::now();
    // Its permit is back a second later.
    drop(readied);
    next.await.expect("no panic").expect("a socket");
    assert!((1_000..=1_010).contains(&before.elapsed().as_millis()));
    assert!(unpolled.is_woken());
}
