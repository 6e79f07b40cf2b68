//! The hyper client: rustls with the platform's roots, and a permit in each socket.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use tower::{
    BoxError, Layer,
    timeout::{Timeout, future::ResponseFuture as Bounded},
    util::MapFuture,
};
use tower_service::Service;
use tower_tds_limits::{Background, ConnectionLimit, ConnectionLimitLayer, Limiter};

use crate::{
    RequestBody,
    proxy::{Proxied, Proxies},
};

/// hyper's client behind one pointer: the stack above is cloned for each call, and a client of hyper's has
/// 40 words of settings.
#[derive(Debug)]
pub(crate) struct Http<B = RequestBody>(Arc<Client<Connector, B>>);

/// Whether plain http may be spoken; to which hosts is checked where addresses are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schemes {
    HttpsOnly,
    LoopbackHttp,
}

/// The permit is around the TCP connect, under TLS: what a server counts. It is seen to its end,
/// whatever becomes of the handshake. The wait for it is nobody's connecting, and not timed.
type Connector = MapFuture<Timeout<Tls>, fn(Connect) -> Pin<Box<Connect>>>;

type Tls = HttpsConnector<Proxied<ConnectionLimit<HttpConnector>>>;

/// Boxed by `Connector`, since hyper asks for one that can be moved.
type Connect = Bounded<<Tls as Service<Uri>>::Future>;

// === impl Http ===

impl<B> Clone for Http<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Service<Request<B>> for Http<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Response = Response<Incoming>;
    type Error = legacy::Error;
    type Future = legacy::ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.0.request(request)
    }
}

/// A connector whose sockets are inside `limiter`'s limit.
pub(crate) fn connector(
    limiter: Limiter,
    schemes: Schemes,
    tls: ClientConfig,
    proxies: &Proxies,
) -> Connector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let tls = HttpsConnectorBuilder::new().with_tls_config(tls);
    let tls = match schemes {
        Schemes::HttpsOnly => tls.https_only(),
        Schemes::LoopbackHttp => tls.https_or_http(),
    };
    // What counts is the connection to the proxy, where there is one.
    let limited = proxies.layer(ConnectionLimitLayer::new(limiter).layer(tcp));
    let tls = tls.enable_http1().wrap_connector(limited);
    // Without it nothing bounds a handshake that goes on in the background, where a pool leaves it
    // whose request has got another socket.
    MapFuture::new(Timeout::new(tls, HANDSHAKE_TIMEOUT), Box::pin)
}

/// A client that keeps connections.
pub(crate) fn pooled<B>(connector: Connector) -> Http<B>
where
    B: Body<Data: Send> + Send,
{
    // Without a timer the pool never closes an idle socket, and idle ones count.
    let client = Client::builder(Background::new(TokioExecutor::new()))
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build(connector);
    Http(Arc::new(client))
}

/// A client that makes a connection for each request.
pub(crate) fn unpooled(connector: Connector) -> Http {
    let client = Client::builder(Background::new(TokioExecutor::new()))
        .pool_max_idle_per_host(0)
        .build(connector);
    Http(Arc::new(client))
}

/// As long as a lost first segment is worth waiting for: 1 + 2 + 4 s of retransmissions on Linux.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// From the first segment to the end of the TLS handshake: as long again.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Shorter than the 60 to 75 s that gateways keep an idle connection, so that it is this side
/// that closes and no request meets a closing socket.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
