//! Clients of hyper: over rustls or your connector, with a permit for each socket.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri, uri::Scheme};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{
        self, Client,
        connect::{Connect, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::ClientConfig;
use tokio::{net::TcpStream, time::Instant};
use tower::{BoxError, Layer, ServiceExt as _, service_fn, timeout::Timeout};
use tower_service::Service;
use tower_tds_limits::{ConnectionLimitLayer, Limiter};
use tower_tds_outcome::DeadlineAt;

use crate::{
    client::{
        body::{AnyBody, marked},
        request::RequestBody,
    },
    http::{
        addresses::{Addresses, Target},
        pool::{Call, Calls, ConnectionState, Pooled},
        proxy::{Proxied, Proxies},
    },
};

/// Client of hyper with any connector, behind one pointer, because each call clones it.
pub(crate) struct Http<B = RequestBody>(
    pub(crate) Arc<dyn Fn(Request<B>) -> HttpFuture + Send + Sync>,
);

/// A call until its response head. hyper-util has boxed its own future, so this one is not boxed again.
pub(crate) struct HttpFuture {
    response: legacy::ResponseFuture,
    /// `None` after the end.
    call: Option<Call>,
    is_over_rustls: bool,
    /// Decodes the response.
    pub(crate) decode: Option<Decode>,
}

type Decode = fn(Response<AnyBody>) -> Response<AnyBody>;

/// Whether plain http is allowed, to hosts that the builder has checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schemes {
    HttpsOnly,
    LoopbackHttp,
}

/// Clients of tokens and of data.
pub(crate) struct Clients {
    pub(crate) tokens: Http<Full<Bytes>>,
    pub(crate) data: Http,
}

/// Clients of the user's connector, not yet built.
pub(crate) type MakeClients = Box<dyn FnOnce(&Limiter) -> Clients + Send>;

// === impl Http ===

impl<B> Http<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    fn new<C>(connector: C, is_rustls: bool, idle: usize) -> Self
    where
        C: Service<Uri, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
        C::Response: Read + Write + Connection + Send + Unpin + 'static,
    {
        let calls = Arc::<Calls>::default();
        let client = Client::builder(TokioExecutor::new())
            // RFC 9112, section 5.2: a fold in a head is read as a space.
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            // Without a timer the pool never closes an idle socket, and idle ones count.
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(idle)
            .build(bounded(connector, Arc::clone(&calls)));
        Self(Arc::new(move |request| {
            let deadline = DeadlineAt::of(request.extensions()).map(Instant::from_std);
            HttpFuture {
                call: Some(calls.begin(deadline)),
                is_over_rustls: is_rustls && request.uri().scheme() == Some(&Scheme::HTTPS),
                response: client.request(request),
                decode: None,
            }
        }))
    }
}

impl<B> Clone for Http<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Service<Request<B>> for Http<B> {
    type Response = Response<AnyBody>;
    type Error = legacy::Error;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> HttpFuture {
        (self.0)(request)
    }
}

// === impl HttpFuture ===

impl Future for HttpFuture {
    type Output = Result<Response<AnyBody>, legacy::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut response = ready!(Pin::new(&mut this.response).poll(cx))?;
        this.call.take().into_iter().for_each(Call::answered);
        let connection = response.extensions_mut().remove::<ConnectionState>();
        let in_use = connection.map(ConnectionState::in_use);
        let boxed = |body: Incoming| {
            let body = body.map_err(move |error| {
                let _in_use = &in_use;
                error.into()
            });
            AnyBody::new(body)
        };
        let response = marked(response, this.is_over_rustls).map(boxed);
        Poll::Ready(Ok(match this.decode {
            Some(decode) => decode(response),
            None => response,
        }))
    }
}

/// Defers the build of the clients until the limits are known.
pub(crate) fn make_clients<C>(connector: C) -> MakeClients
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
{
    Box::new(move |limiter| {
        clients(limiter, false, |limiter| {
            ConnectionLimitLayer::new(limiter).layer(connector.clone())
        })
    })
}

/// Builds the clients over limited connectors.
///
/// Because there is about one token request a day, the token client keeps no idle socket. With a single connection the
/// data client keeps none either, because a token call would wait for the idle timeout.
pub(crate) fn clients<C>(
    limiter: &Limiter,
    is_rustls: bool,
    connector: impl Fn(Limiter) -> C,
) -> Clients
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
{
    let idle = match limiter.limits().most_connections().get() {
        1 => 0,
        _ => usize::MAX,
    };
    Clients {
        tokens: Http::new(connector(limiter.first_in_line()), is_rustls, 0),
        data: Http::new(connector(limiter.clone()), is_rustls, idle),
    }
}

/// Builds the connector: TLS over a proxy's tunnel over TCP. Each connect to an address takes a
/// permit, because a server counts TCP connections; for the first one this waits in `poll_ready`,
/// without a timeout.
pub(crate) fn connector(
    limiter: Limiter,
    schemes: Schemes,
    tls: ClientConfig,
    proxies: Proxies,
) -> impl Service<
    Uri,
    Response: Read + Write + Connection + Send + Unpin + 'static,
    Error = BoxError,
    Future: Send,
> + Clone
+ Send
+ Sync
+ 'static {
    let tcp = tcp(&limiter);
    let tls = HttpsConnectorBuilder::new().with_tls_config(tls);
    let tls = match schemes {
        Schemes::HttpsOnly => tls.https_only(),
        Schemes::LoopbackHttp => tls.https_or_http(),
    };
    // With a proxy, the connection to the proxy counts.
    let inner = Addresses::new(ConnectionLimitLayer::new(limiter).layer(tcp));
    tls.enable_http1()
        .wrap_connector(Proxied { inner, proxies })
}

/// Connects to one address.
fn tcp(
    limiter: &Limiter,
) -> impl Service<Target, Response = TokioIo<TcpStream>, Error = BoxError, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ use<> {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    // Finds dead connections while they are idle, and keeps those alive that a NAT would forget.
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    // A request that was given up must arrive no later than the limiter assumes. Zero would mean the system's default,
    // which is a quarter of an hour.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(limiter.limits().tcp_user_timeout()));
    service_fn(move |target: Target| {
        let tcp = tcp.clone();
        async move { Ok(tcp.oneshot(target?).await?) }
    })
}

/// Bounds the time of a handshake, from the readiness of the connector. Without the bound, it might never end: if the
/// request gets another socket meanwhile, the handshake continues in a task of the pool.
///
/// hyper clones the connector for each request, so the inner connector is behind an `Arc`.
fn bounded<C>(
    connector: C,
    calls: Arc<Calls>,
) -> impl Connect
+ Service<Uri, Response: Send, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
{
    let shared = Arc::new((Timeout::new(connector, HANDSHAKE_TIMEOUT), calls));
    // Boxed, because hyper requires an `Unpin` future.
    service_fn(move |to: Uri| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let (connector, calls) = &*shared;
            let connected = connector.clone().oneshot(to).await?;
            Ok::<_, BoxError>(Pooled::new(connected, calls))
        })
    })
}

/// Longer than the retransmissions of a lost first segment (1 + 2 + 4 s on Linux).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// On Linux a dead connection is found by the second probe, because `TCP_USER_TIMEOUT` has passed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Connect timeout, and as long again for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Shorter than the 60 to 75 s of gateways, so that this side closes first, and no request is sent
/// on a closing socket.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
