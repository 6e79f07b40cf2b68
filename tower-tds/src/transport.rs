//! The hyper clients: over TLS of rustls or a connector of the user's own, and a permit in each socket.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{
        self, Client, ResponseFuture,
        connect::{Connect, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use tower::{BoxError, Layer, ServiceExt, timeout::Timeout, util::Oneshot};
use tower_service::Service;
use tower_tds_limits::{ConnectionLimitLayer, Limiter};

use crate::{RequestBody, proxy::Proxies};

/// A client of hyper's, of any connector. It is behind one pointer, because the stack above is cloned for each call.
pub(crate) struct Http<B = RequestBody>(Arc<dyn Fn(Request<B>) -> ResponseFuture + Send + Sync>);

/// Whether plain http may be spoken; to which hosts is checked where addresses are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schemes {
    HttpsOnly,
    LoopbackHttp,
}

/// The clients of tokens and of data.
pub(crate) struct Clients {
    pub(crate) tokens: Http<Full<Bytes>>,
    pub(crate) data: Http,
}

/// A connector of the user's own, as what is made of it.
pub(crate) struct Given(Box<MakeClients>);

type MakeClients = dyn FnOnce(&Limiter) -> Clients + Send;

/// A connector with a bound. hyper clones it for each request; the connector is cloned for each connection.
struct Bounded<C>(Arc<Timeout<C>>);

// === impl Http ===

impl<B> Http<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    fn new<C>(connector: C, idle: usize) -> Self
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        let client = Client::builder(TokioExecutor::new())
            // RFC 9112, section 5.2: a fold in a head is read as a space.
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            // Without a timer the pool never closes an idle socket, and idle ones count.
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(idle)
            .build(connector);
        Self(Arc::new(move |request| client.request(request)))
    }
}

impl<B> Clone for Http<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Service<Request<B>> for Http<B> {
    type Response = Response<Incoming>;
    type Error = legacy::Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        (self.0)(request)
    }
}

impl<B> fmt::Debug for Http<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

// === impl Bounded ===

impl<C> Clone for Bounded<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> Service<Uri> for Bounded<C>
where
    C: Service<Uri, Error: Into<BoxError>> + Clone,
{
    type Response = C::Response;
    type Error = BoxError;
    // Boxed, since hyper asks for a future that can be moved.
    type Future = Pin<Box<Oneshot<Timeout<C>, Uri>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The future waits, and the bound begins after the wait.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(Timeout::clone(&self.0).oneshot(to))
    }
}

// === impl Given ===

impl Given {
    pub(crate) fn new<C>(connector: C) -> Self
    where
        C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        C::Response: Read + Write + Connection + Send + Unpin + 'static,
    {
        Self(Box::new(move |limiter| {
            clients(limiter, |limiter| {
                bounded(ConnectionLimitLayer::new(limiter).layer(connector.clone()))
            })
        }))
    }

    pub(crate) fn clients(self, limiter: &Limiter) -> Clients {
        (self.0)(limiter)
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

/// The clients over connectors that are inside of a limiter's limit.
///
/// A token call keeps no idle socket: there is about one a day. With one connection, data calls keep
/// none either, because a token call would wait for the idle timeout.
pub(crate) fn clients<C>(limiter: &Limiter, connector: impl Fn(Limiter) -> C) -> Clients
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let idle = match limiter.limits().connections.get() {
        1 => 0,
        _ => usize::MAX,
    };
    Clients {
        tokens: Http::new(connector(limiter.first_in_line()), 0),
        data: Http::new(connector(limiter.clone()), idle),
    }
}

/// TLS over a proxy's tunnel over TCP. The permit is around the TCP connect, because a server counts
/// those. The wait for it is in `poll_ready`, and not timed.
pub(crate) fn connector(
    limiter: Limiter,
    schemes: Schemes,
    tls: ClientConfig,
    proxies: Proxies,
) -> impl Connect
+ Service<Uri, Response: Send, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
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
    bounded(tls.enable_http1().wrap_connector(limited))
}

/// Bounds the handshake. Without a bound it would go on for ever in a task of the pool, where the
/// request has another socket.
fn bounded<C>(connector: C) -> Bounded<C> {
    Bounded(Arc::new(Timeout::new(connector, HANDSHAKE_TIMEOUT)))
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
