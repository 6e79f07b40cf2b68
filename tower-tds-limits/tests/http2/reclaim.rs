//! Idle HTTP/2 connections make room for connects that wait; one that carries a stream never does,
//! and a request that meets one which leaves has not been sent.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use tokio::task::JoinSet;
use tower::{BoxError, ServiceExt};
use tower_tds_limits::{Limiter, Limits};

use crate::{
    Https, client, count,
    server::{self, Server},
};

/// So many connections, and waits of so many seconds at the most.
fn impatient(connections: u32, seconds: u64) -> Limiter {
    let limits = Limits::default().max_wait(Duration::from_secs(seconds));
    Limiter::new(limits.connections(count(connections)))
}

async fn get(client: &Https, uri: Uri) -> Result<Bytes, BoxError> {
    let request = Request::get(uri).body(Empty::new())?;
    let response = client.clone().oneshot(request).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn a_host_is_served_although_the_only_socket_idles_at_another() {
    // No pool timer: nothing but the limit closes an idle socket.
    let (a, b) = (Server::start().await, Server::start().await);
    let limiter = impatient(1, 10);
    let client = client([&a, &b], &limiter);
    for _ in 0..3 {
        for (to, other) in [(&a, &b), (&b, &a)] {
            let body = get(&client, to.uri()).await.expect("there is room");
            assert_eq!(body, server::BODY);
            other.closed_all_but(0).await;
        }
    }
    assert_eq!((a.requests(), b.requests()), (3, 3));
    assert_eq!((a.opened_sockets(), b.opened_sockets()), (3, 3));
}

/// As a caller who sends again what meets a socket that leaves.
///
/// hyper takes requests for such a connection in one task and reads its end in another, so there
/// are some microseconds in which it fails a request that it might have given back (1 of 2,800 that
/// aim at them; HTTP/1 has one task, and none). Nothing of it is sent, which the servers tell.
async fn get_again(client: &Https, uri: Uri) -> Result<Bytes, BoxError> {
    match get(client, uri.clone()).await {
        Err(error) if format!("{error:?}").contains("without sending TLS close_notify") => {
            get(client, uri).await
        }
        ended => ended,
    }
}

/// An answer that is under way keeps its socket, and comes whole.
async fn is_not_cut(uri: impl Fn(&Server) -> Uri, together: u32) {
    let (a, b) = (Server::start().await, Server::start().await);
    let limiter = impatient(1, 1);
    let client = client([&a, &b], &limiter);
    get(&client, a.uri()).await.expect("an answer");
    a.answer_together(together);
    let (busy, uri) = (client.clone(), uri(&a));
    let busy = tokio::spawn(async move { get(&busy, uri).await });
    a.seen_requests(1).await;

    let refused = get(&client, b.uri()).await;
    let refused = refused.expect_err("the one socket is busy");
    assert!(format!("{refused:?}").contains("TimedOut"), "{refused:?}");
    a.answer_together(0);
    a.release();
    let body = busy.await.expect("no panic").expect("the whole answer");
    assert_eq!(body, server::BODY);
    assert_eq!((a.opened_sockets(), b.opened_sockets()), (1, 0));
    get(&client, b.uri()).await.expect("there is room");
}

#[tokio::test]
async fn a_connection_whose_response_is_awaited_is_not_cut() {
    is_not_cut(Server::uri, 2).await;
}

#[tokio::test]
async fn a_connection_whose_body_is_slow_to_come_is_not_cut() {
    is_not_cut(Server::held, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_compete_for_few_sockets_lose_no_request() {
    let (a, b, c) = (
        Server::start().await,
        Server::start().await,
        Server::start().await,
    );
    let limiter = impatient(2, 60);
    let client = client([&a, &b, &c], &limiter);
    let mut calls = JoinSet::new();
    for n in 0..300_usize {
        let uri = [&a, &b, &c].map(Server::uri)[n % 3].clone();
        let client = client.clone();
        calls.spawn(async move {
            // About as long as it takes to be asked to leave, so that many meet that moment.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000_000))).await;
            get_again(&client, uri).await
        });
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), server::BODY);
    }
    assert_eq!(a.requests() + b.requests() + c.requests(), 300);
    assert!(limiter.snapshot().connections <= 2);
    assert_eq!(limiter.snapshot().connects_waiting, 0);
}

/// The other host's connect waits, and the socket is about to leave when a request comes for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_meets_a_socket_which_leaves_was_not_sent() {
    let (a, b) = (Server::start().await, Server::start().await);
    let client = client([&a, &b], &impatient(1, 10));
    let call = |server: &Server| {
        let (client, uri) = (client.clone(), server.uri());
        async move { get_again(&client, uri).await }
    };
    for _ in 0..60 {
        call(&a).await.expect("an answer");
        let other = tokio::spawn(call(&b));
        // Asked after 20 ms, by a timer that is up to 2 ms late.
        tokio::time::sleep(Duration::from_micros(fastrand::u64(19_000..23_000))).await;
        call(&a).await.expect("an answer");
        other.await.expect("no panic").expect("there is room");
    }
    // Whatever was sent again had not been sent before.
    assert_eq!((a.requests(), b.requests()), (120, 60));
}
