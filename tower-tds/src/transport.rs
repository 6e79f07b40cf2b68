//! The hyper clients: over TLS of rustls or a connector of the user's own, and a permit in each socket.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnectorBuilder;
#[cfg(feature = "http2")]
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::{
    client::legacy::{
        self, Client,
        connect::{CaptureConnection, Connect, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioTimer},
};
use pin_project_lite::pin_project;
use rustls::ClientConfig;
use tower::{BoxError, Layer, ServiceExt, timeout::Timeout, util::Oneshot};
use tower_service::Service;
use tower_tds_limits::{Background, ConnectionLimitLayer, Limiter, held};

use crate::{
    RequestBody, limiters::Limiters, misdirected::Misdirected, proxy::Proxies, received::Received,
};

/// A client of hyper's, whatever its connector is. It is behind one pointer, since the stack above is cloned for each
/// call.
pub(crate) struct Http<B = RequestBody>(Arc<dyn Fn(Request<B>) -> HttpFuture + Send + Sync>);

pin_project! {
    /// The response of an [`Http`].
    pub(crate) struct HttpFuture {
        #[pin]
        inner: legacy::ResponseFuture,
        // There until the request has a connection that another one may have made.
        connects: Option<CaptureConnection>,
    }
}

/// Whether plain http may be spoken; to which hosts is checked where addresses are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schemes {
    HttpsOnly,
    LoopbackHttp,
}

/// What data connections speak. Those of tokens speak HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    #[cfg(feature = "http2")]
    Http2,
}

/// The clients of tokens and of data.
pub(crate) struct Clients {
    pub(crate) tokens: Http<Full<Bytes>>,
    pub(crate) data: Misdirected,
}

/// A connector of the user's own, as what is made of it.
pub(crate) struct Given(Box<MakeClients>);

type MakeClients = dyn FnOnce(&Limiters, Protocol) -> Clients + Send;

/// A connector with an end to its connecting. hyper clones one for each request: it is cloned for each connection.
struct Bounded<C>(Arc<Timeout<C>>);

// === impl Protocol ===

impl Protocol {
    /// Whether its requests have the header `Host` (RFC 9113, section 8.3.1: HTTP/2 has a field of its own).
    pub(crate) const fn has_host(self) -> bool {
        match self {
            Self::Http1 => true,
            #[cfg(feature = "http2")]
            Self::Http2 => false,
        }
    }
}

// === impl Http ===

impl<B> Http<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    #[cfg_attr(
        not(feature = "http2"),
        expect(unused_mut, reason = "HTTP/1 needs no setting")
    )]
    fn new<C>(client: Client<C, B>, protocol: Protocol) -> Self
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        Self(Arc::new(move |mut request| HttpFuture {
            connects: match protocol {
                // Each call makes its own, and its connector says so.
                Protocol::Http1 => None,
                #[cfg(feature = "http2")]
                Protocol::Http2 => Some(capture_connection(&mut request)),
            },
            inner: client.request(request),
        }))
    }

    /// Keeps connections.
    fn pooled<C>(connector: C, protocol: Protocol) -> Self
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        // Without a timer the pool never closes an idle socket, and idle ones count.
        let mut client = builder(protocol);
        let client = client
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT);
        Self::new(client.build(connector), protocol)
    }

    /// Makes a connection for each request.
    fn unpooled<C>(connector: C, protocol: Protocol) -> Self
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        let mut client = builder(protocol);
        Self::new(client.pool_max_idle_per_host(0).build(connector), protocol)
    }
}

impl<B> Clone for Http<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Service<Request<B>> for Http<B> {
    type Response = Response<Received>;
    type Error = legacy::Error;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        (self.0)(request)
    }
}

impl<B> fmt::Debug for Http<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

// === impl HttpFuture ===

impl Future for HttpFuture {
    type Output = Result<Response<Received>, legacy::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.inner.poll(cx);
        if let Some(captured) = this.connects {
            let connects = captured.connection_metadata().is_none();
            held(connects);
            if !connects {
                *this.connects = None;
            }
        }
        polled.map_ok(Received::of)
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
        // The wait is in the future, before what is bounded.
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
        Self(Box::new(move |limiters, protocol| {
            clients(limiters, protocol, |limiter, _| {
                bounded(ConnectionLimitLayer::new(limiter).layer(connector.clone()))
            })
        }))
    }

    pub(crate) fn clients(self, limiters: &Limiters, protocol: Protocol) -> Clients {
        (self.0)(limiters, protocol)
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

/// The clients over connectors that are inside of a limiter's limit.
pub(crate) fn clients<C>(
    limiters: &Limiters,
    protocol: Protocol,
    connector: impl Fn(Limiter, Protocol) -> C,
) -> Clients
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let tokens = connector(limiters.token_sockets.clone(), Protocol::Http1);
    let data = connector(limiters.data.clone(), protocol);
    Clients {
        tokens: Http::pooled(tokens, Protocol::Http1),
        data: Misdirected::new(
            Http::pooled(data.clone(), protocol),
            Http::unpooled(data, protocol),
        ),
    }
}

/// TLS over a proxy's tunnel over TCP. The permit is around the TCP connect, under TLS: what a server counts. It is seen
/// to its end, whatever becomes of the handshake. The wait for it is nobody's connecting, and not timed.
pub(crate) fn connector(
    limiter: Limiter,
    protocol: Protocol,
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
    bounded(match protocol {
        Protocol::Http1 => tls.enable_http1().wrap_connector(limited),
        #[cfg(feature = "http2")]
        Protocol::Http2 => tls.enable_http2().wrap_connector(limited),
    })
}

/// Without a bound nothing ends a handshake that goes on in the background, where a pool leaves it whose request has got
/// another socket.
fn bounded<C>(connector: C) -> Bounded<C> {
    Bounded(Arc::new(Timeout::new(connector, HANDSHAKE_TIMEOUT)))
}

fn builder(protocol: Protocol) -> legacy::Builder {
    let mut builder = Client::builder(Background::new(TokioExecutor::new()));
    // RFC 9112, section 5.2: a fold in a head is read as a space.
    builder.http1_allow_obsolete_multiline_headers_in_responses(true);
    match protocol {
        Protocol::Http1 => {}
        #[cfg(feature = "http2")]
        Protocol::Http2 => {
            // A connection that has died without a word would keep all calls waiting, and none of them ends it.
            builder
                .http2_only(true)
                .timer(TokioTimer::new())
                .http2_keep_alive_interval(PING_AFTER)
                .http2_keep_alive_timeout(PING_TIMEOUT);
        }
    }
    builder
}

/// As long as a lost first segment is worth waiting for: 1 + 2 + 4 s of retransmissions on Linux.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// From the first segment to the end of the TLS handshake: as long again.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Shorter than the 60 to 75 s that gateways keep an idle connection, so that it is this side
/// that closes and no request meets a closing socket.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// While calls are under way on it, a connection of HTTP/2 is asked for a sign of life this often,
#[cfg(feature = "http2")]
const PING_AFTER: Duration = Duration::from_secs(10);

/// and has this long to give one: as a connect.
#[cfg(feature = "http2")]
const PING_TIMEOUT: Duration = CONNECT_TIMEOUT;

#[cfg(test)]
mod tests;
