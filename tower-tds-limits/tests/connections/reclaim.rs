//! Idle sockets make room for connects that wait; busy ones never do.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::Connect},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{
    io::AsyncReadExt,
    task::JoinSet,
    time::{Instant, timeout},
};
use tower::{Layer, ServiceExt};
use tower_tds_limits::{
    Background, ConnectionLimit, ConnectionLimitLayer, LimitedIo, Limiter, Limits, Track,
};

use crate::{
    client, count, get, limiter,
    net::{Net, Pipe},
    server::{self, Server},
    stream::Stalled,
};

/// A client whose answers say when they have ended.
pub(crate) type Tracked<C, B = Empty<Bytes>> = Track<Client<C, B>>;

pub(crate) fn tracked<C, B>(client: Client<C, B>) -> Tracked<C, B> {
    Track::new(client)
}

pub(crate) type NetClient = Tracked<ConnectionLimit<Net>>;

pub(crate) fn net_client(net: &Net, limiter: &Limiter) -> NetClient {
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(net.clone());
    tracked(Client::builder(Background::new(TokioExecutor::new())).build(connector))
}

/// So many connections, and waits of a second at the most.
pub(crate) fn impatient(most: u32) -> Limiter {
    let limits = Limits::default().max_wait(Duration::from_secs(1));
    Limiter::new(limits.connections(count(most)).in_flight(count(most)))
}

/// Leaves so many idle sockets behind.
pub(crate) async fn warm<C>(client: &Tracked<C>, server: &Server, sockets: u32)
where
    C: Connect + Clone + Send + Sync + 'static,
{
    server.answer_together(sockets);
    let mut calls = JoinSet::new();
    for _ in 0..sockets {
        calls.spawn(get(client.clone(), server.uri()));
    }
    for body in calls.join_all().await {
        body.expect("an answer");
    }
    server.answer_together(0);
    assert_eq!(server.open_sockets(), sockets);
}

#[tokio::test]
async fn a_host_is_served_although_every_socket_idles_at_another() {
    // No pool timer: nothing but the limit closes an idle socket.
    let (a, b) = (Server::start().await, Server::start().await);
    let limiter = limiter(4);
    let client = client(&limiter);
    warm(&client, &a, 4).await;
    let body = get(client.clone(), b.uri()).await;
    assert_eq!(body.expect("there is room"), server::BODY);
    a.seen_ends(1).await;
    assert_eq!((a.open_sockets(), b.open_sockets()), (3, 1));
    // The three that stayed are as good as before.
    warm(&client, &a, 3).await;
    assert_eq!((a.opened_sockets(), b.opened_sockets()), (4, 1));
}

#[test]
fn a_runtime_that_stands_still_keeps_no_other_idle_socket_from_making_room() {
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().expect("a runtime")
    };
    let (still, moves) = (runtime(), runtime());
    let servers = tokio::runtime::Runtime::new().expect("a runtime");
    let start = || servers.block_on(Server::start());
    let (a, b, c) = (start(), start(), start());
    let limiter = limiter(2);
    let client = client(&limiter);
    // It has been idle for longest, and nobody reads the word that it is to leave.
    still.block_on(warm(&client, &a, 1));
    moves.block_on(async {
        warm(&client, &b, 1).await;
        let called = timeout(Duration::from_secs(5), get(client.clone(), c.uri())).await;
        called.expect("in time").expect("there is room");
    });
    assert_eq!((a.open_sockets(), c.open_sockets()), (1, 1));
    drop(still);
}

#[tokio::test(start_paused = true)]
async fn an_idle_socket_is_given_up_within_a_tenth_of_a_second() {
    let net = Net::of(["a", "b"]);
    let limiter = limiter(4);
    let client = net_client(&net, &limiter);
    warm(&client, net.server("a"), 4).await;
    let before = Instant::now();
    get(client.clone(), net.server("b").uri())
        .await
        .expect("there is room");
    assert!(before.elapsed() < Duration::from_millis(100), "{before:?}");
    assert_eq!(net.server("a").open_sockets(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_close_keeps_no_idle_socket_from_making_room() {
    let net = Net::of(["a", "b", "dead"]);
    let limiter = limiter(4);
    let client = net_client(&net, &limiter);
    warm(&client, net.server("a"), 3).await;
    let dead = net.server("dead");
    dead.close_slowly();
    let request = Request::get(dead.at("/held")).body(Empty::new());
    let response = client.clone().oneshot(request.expect("a request")).await;
    drop(response.expect("a head"));
    dead.seen_ends(1).await;

    let before = Instant::now();
    get(client.clone(), net.server("b").uri())
        .await
        .expect("there is room");
    assert!(before.elapsed() < Duration::from_millis(100), "{before:?}");
    assert_eq!(
        (dead.open_sockets(), net.server("a").open_sockets()),
        (1, 2)
    );
    assert_eq!(limiter.snapshot().connections, 4);
}

#[tokio::test(start_paused = true)]
async fn two_clients_of_one_limiter_do_not_starve_each_other() {
    let net = Net::of(["a"]);
    let limiter = limiter(2);
    let (one, other) = (net_client(&net, &limiter), net_client(&net, &limiter));
    for _ in 0..10 {
        warm(&one, net.server("a"), 2).await;
        warm(&other, net.server("a"), 2).await;
    }
    assert_eq!(net.server("a").peak_sockets(), 2);
}

/// A socket that carries what `path` is answered with is not cut for another host, and its
/// answer comes whole.
async fn is_not_cut(path: &str) {
    let net = Net::of(["a", "b"]);
    let limiter = impatient(1);
    let client = net_client(&net, &limiter);
    let a = net.server("a");
    // One whole exchange before it, so that the socket has been idle once.
    get(client.clone(), a.uri()).await.expect("an answer");
    let busy = tokio::spawn(get(client.clone(), a.at(path)));
    a.seen_requests(2).await;
    let refused = get(client.clone(), net.server("b").uri()).await;
    let refused = refused.expect_err("the one socket is busy");
    assert!(refused.contains("TimedOut"), "{refused}");
    assert_eq!(a.open_sockets(), 1, "{path}");
    a.release();
    let body = busy.await.expect("no panic").expect("the whole answer");
    assert_eq!(body, server::BODY, "{path}");
    assert_eq!(a.opened_sockets(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_socket_whose_response_is_awaited_is_not_cut() {
    is_not_cut("/late").await;
}

#[tokio::test(start_paused = true)]
async fn a_socket_whose_body_is_slow_to_come_is_not_cut() {
    is_not_cut("/held").await;
}

#[tokio::test(start_paused = true)]
async fn a_socket_whose_chunks_are_slow_to_come_is_not_cut() {
    is_not_cut("/held-chunks").await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_with_the_connection_is_not_cut_short() {
    is_not_cut("/until-close").await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_nobody_reads_keeps_its_socket() {
    // The wait ends in the limit's own error, and not in a hang.
    let net = Net::of(["a"]);
    let limiter = impatient(3);
    let client = net_client(&net, &limiter);
    let a = net.server("a");
    let mut unread = Vec::new();
    for _ in 0..3 {
        let request = Request::get(a.at("/held")).body(Empty::new());
        let response = client.clone().oneshot(request.expect("a request")).await;
        unread.push(response.expect("a head"));
    }
    let before = Instant::now();
    let refused = get(client.clone(), a.uri()).await;
    let refused = refused.expect_err("every socket is held");
    assert!(refused.contains("TimedOut"), "{refused}");
    assert_eq!(before.elapsed().as_secs(), 1);
    assert_eq!(a.open_sockets(), 3);
    // And what was held is whole.
    a.release();
    for response in unread {
        let body = response.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), server::BODY);
    }
    get(client, a.uri()).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn under_a_backlog_free_sockets_are_handed_on_and_not_closed() {
    let net = Net::of(["a"]);
    let limiter = limiter(10);
    let client = net_client(&net, &limiter);
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        calls.spawn(get(client.clone(), net.server("a").uri()));
    }
    for body in calls.join_all().await {
        body.expect("every call is answered");
    }
    assert_eq!(net.server("a").opened_sockets(), 10);
}

#[tokio::test(start_paused = true)]
async fn hosts_that_compete_for_few_sockets_are_all_served() {
    let net = Net::of(["a", "b", "c", "d", "e"]);
    let limiter = limiter(2);
    let client = net_client(&net, &limiter);
    let mut calls = JoinSet::new();
    for n in 0..500 {
        let host = ["a", "b", "c", "d", "e"].get(n % 5).expect("five hosts");
        let uri: Uri = net.server(host).uri();
        let client = client.clone();
        calls.spawn(async move {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..5_000))).await;
            get(client, uri).await
        });
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), server::BODY);
    }
    assert!(limiter.snapshot().connections <= 2);
    assert_eq!(limiter.snapshot().connects_waiting, 0);
}

/// One socket of a limit of one, by hand.
async fn by_hand(net: &Net) -> (TokioIo<LimitedIo<Pipe>>, ConnectionLimit<Net>) {
    let connector = ConnectionLimitLayer::new(limiter(1)).layer(net.clone());
    let socket = connector.clone().oneshot(net.server("a").uri()).await;
    (TokioIo::new(socket.expect("a socket")), connector)
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_nobody_has_used_makes_room_after_five_seconds() {
    let net = Net::of(["a"]);
    let (mut socket, connector) = by_hand(&net).await;
    let before = Instant::now();
    let next = tokio::spawn(connector.oneshot(net.server("a").uri()));
    assert_eq!(socket.read(&mut [0]).await.expect("an end"), 0);
    assert_eq!(before.elapsed().as_secs(), 5);
    drop(socket);
    next.await.expect("no panic").expect("there is room");
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_answered_early_gives_its_socket_back() {
    let net = Net::of(["a"]);
    let limiter = limiter(3);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(net.clone());
    let client: Client<_, Stalled> =
        Client::builder(Background::new(TokioExecutor::new())).build(connector);
    let client = tracked(client);
    let a = net.server("a");
    // Each leaves a connection neither pooled nor closed, because its body never ends.
    let before = Instant::now();
    for n in 0..6 {
        let request = Request::post(a.at("/early")).body(Stalled::default());
        let response = client.clone().oneshot(request.expect("a request")).await;
        let response = response.expect("an answer");
        assert_eq!(response.status(), http::StatusCode::LOCKED);
        let body = response.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), server::BODY);
        assert!(
            before.elapsed() <= Duration::from_millis(5_100),
            "the {n}th"
        );
    }
    assert_eq!((a.requests(), a.peak_sockets()), (6, 3));
}
