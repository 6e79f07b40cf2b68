//! The parts of `hyper_util::client::pool` around a limited connector.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::client::pool::cache;
use tokio::task::JoinSet;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_tds_limits::{ConnectionLimit, ConnectionLimitLayer};

use crate::{limiter, net::Net, server};

/// Connects, and shakes hands.
#[derive(Clone)]
struct Connect {
    connector: ConnectionLimit<Net>,
}

struct Sender(SendRequest<Empty<Bytes>>);

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

// === impl Connect ===

impl Service<Uri> for Connect {
    type Response = Sender;
    type Error = BoxError;
    type Future = BoxFuture<Sender>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connecting = self.connector.call(target);
        Box::pin(async move {
            let (sender, connection) = handshake(connecting.await?).await?;
            tokio::spawn(connection);
            Ok(Sender(sender))
        })
    }
}

// === impl Sender ===

impl Service<Request<Empty<Bytes>>> for Sender {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<Response<Incoming>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(ready!(self.0.poll_ready(cx))?))
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        let response = self.0.send_request(request);
        Box::pin(async move { Ok(response.await?) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_through_a_cache_share_ten_sockets() {
    let net = Net::of(["a"]);
    let limiter = limiter(10);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(net.clone());
    let pool = cache::builder().build(Connect { connector });
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        let (pool, uri) = (pool.clone(), net.server("a").uri());
        calls.spawn(async move {
            let mut sender = pool.oneshot(uri.clone()).await?;
            let request = Request::get(uri).body(Empty::new())?;
            let response = sender.ready().await?.call(request).await?;
            // It goes back to the cache when it is dropped: not before the body has ended.
            let body = response.into_body().collect().await?.to_bytes();
            drop(sender);
            Ok::<_, BoxError>(body)
        });
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), server::BODY);
    }
    assert_eq!(net.server("a").requests(), 1_000);
    assert_eq!(net.server("a").peak_sockets(), 10);
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.connects_waiting), (10, 0));
}
