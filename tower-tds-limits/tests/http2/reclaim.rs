//! Idle HTTP/2 connections make room for connects that wait; one that carries a stream never does,
//! and no request is lost on its way to one.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;
use tokio_test::{
    assert_pending,
    task::{self, Spawn},
};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits};

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
    let response = client.request(request).await?;
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
            get(&client, uri).await
        });
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), server::BODY);
    }
    assert_eq!(a.requests() + b.requests() + c.requests(), 300);
    assert!(limiter.snapshot().connections <= 2);
    assert_eq!(limiter.snapshot().connects_waiting, 0);
}

type Sender = SendRequest<Empty<Bytes>>;

/// A connection that has been used, on the one socket of a limit, and a connect that waits for
/// its place and is about to be given it.
async fn about_to_leave(server: &Server) -> (Sender, Spawn<impl Future<Output = ()> + use<'_>>) {
    let connector = service_fn(|()| {
        let socket = TokioIo::new(server.connect());
        async { Ok::<_, BoxError>(socket) }
    });
    let limiter = Limiter::new(Limits::default().connections(count(1)));
    let connector = ConnectionLimitLayer::new(limiter).layer(connector);
    let socket = connector.clone().oneshot(()).await.expect("a socket");
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), socket)
        .await
        .expect("an HTTP/2 server");
    tokio::spawn(connection);
    let response = sender.send_request(request(server)).await;
    let body = response.expect("an answer").into_body().collect().await;
    assert_eq!(body.expect("a body").to_bytes(), server::BODY);

    let mut next = task::spawn(async move {
        connector.oneshot(()).await.expect("there is room");
    });
    assert_pending!(next.poll());
    // Both sides say what they have to say about the last stream.
    tokio::time::sleep(Duration::from_millis(10)).await;
    tokio::time::advance(Duration::from_millis(21)).await;
    (sender, next)
}

fn request(server: &Server) -> Request<Empty<Bytes>> {
    let request = Request::get(server.uri()).body(Empty::new());
    request.expect("a request")
}

#[tokio::test(start_paused = true)]
async fn a_request_on_its_way_to_a_connection_that_is_asked_to_leave_is_answered_there() {
    let server = Server::in_process();
    let (mut sender, mut next) = about_to_leave(&server).await;
    // Taken on before the connection has looked, and written after that.
    let on_its_way = sender.send_request(request(&server));
    assert_pending!(next.poll(), "it asks");
    let response = on_its_way.await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), server::BODY);
    assert_eq!((server.requests(), server.opened_sockets()), (2, 1));
    // And then it leaves.
    next.await;
    assert_eq!((server.opened_sockets(), server.peak_sockets()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_after_the_goodbye_is_given_back_unsent() {
    let server = Server::in_process();
    let (mut sender, mut next) = about_to_leave(&server).await;
    assert_pending!(next.poll(), "it asks");
    let refused = sender.try_send_request(request(&server)).await;
    let mut refused = refused.expect_err("the connection is closing");
    assert!(refused.error().is_canceled(), "{refused:?}");
    assert!(refused.take_message().is_some());
    next.await;
    assert_eq!((server.requests(), server.opened_sockets()), (1, 2));
}
