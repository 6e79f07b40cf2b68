//! Connections through a proxy's tunnel (RFC 9110, section 9.3.6), or without one.

use std::{
    env,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::try_join;
use http::{
    Request, StatusCode, Uri,
    header::{HOST, PROXY_AUTHORIZATION},
    uri::{Authority, Scheme},
};
use http_body_util::Empty;
use hyper::{
    client::conn::http1,
    rt::{Read, Write},
};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tower::BoxError;
use tower_service::Service;
use tower_tds_errors::{Error, Kind, Sent};
use tower_tds_outcome::{chain, is_loopback};

/// Proxies of a client.
#[derive(Clone, Default)]
pub(crate) enum Proxies {
    #[default]
    None,
    /// One proxy for all addresses.
    One(Arc<Matcher>),
    /// The proxies of the environment.
    Named(Arc<Matcher>),
}

/// Connector through proxies.
#[derive(Clone)]
pub(crate) struct Proxied<C> {
    pub(crate) inner: C,
    pub(crate) proxies: Proxies,
}

// === impl Proxies ===

impl Proxies {
    /// Takes one proxy for all addresses.
    pub(crate) fn one(url: &str) -> Self {
        Self::One(Arc::new(Matcher::builder().all(url).build()))
    }

    /// Reads the proxies of the environment, as curl does.
    ///
    /// The matcher ignores an address that it cannot parse, and the client would connect directly.
    /// So an address that parses, but that [`of`](Self::of) refuses, stands in for it.
    pub(crate) fn from_env() -> Self {
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| env::var(name).ok());
        let https = [["HTTPS_PROXY", "https_proxy"], ["ALL_PROXY", "all_proxy"]];
        let mut set = https.into_iter().filter_map(first);
        let used = set.find(|url| !url.is_empty()).unwrap_or_default();
        let direct = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
        let all = |url: &str| Matcher::builder().all(url);
        let example = all(&used)
            .build()
            .intercept(&Uri::from_static("https://example.org"));
        let is_read = used.is_empty() || example.is_some();
        let used = if is_read { &used } else { "https://unusable" };
        Self::Named(Arc::new(all(used).no(direct).build()))
    }

    /// Returns what to check if the proxy does not work.
    const fn advice(&self) -> &'static str {
        match self {
            Self::Named(_) => "check HTTPS_PROXY and ALL_PROXY, and that the proxy runs",
            Self::None | Self::One(_) => "check Builder::proxy, and that the proxy runs",
        }
    }

    /// Returns the proxy for `target`, if there is one.
    pub(crate) fn of(&self, target: &Uri) -> Result<Option<Intercept>, BoxError> {
        // Plain http is allowed to this machine alone, and needs no proxy.
        if target.scheme() == Some(&Scheme::HTTP) {
            return Ok(None);
        }
        let proxy = match self {
            Self::None => None,
            // The matcher returns no proxy if it cannot parse the address of the proxy.
            Self::One(all) => Some(all.intercept(target).ok_or(UNUSABLE)?),
            // The environment's proxy is for other machines.
            Self::Named(_) if target.host().is_some_and(is_loopback) => None,
            Self::Named(some) => some.intercept(target),
        };
        let Some(proxy) = proxy else {
            return Ok(None);
        };
        // With an invalid port, the connector would use port 80, and send the credentials to it
        // unencrypted. A proxy that expects TLS would also get them unencrypted.
        let has_port = |address: &Authority| address.as_str() != address.host();
        let is_broken =
            proxy.uri().port_u16().is_none() && proxy.uri().authority().is_some_and(has_port);
        if is_broken || proxy.uri().scheme() != Some(&Scheme::HTTP) {
            return Err(UNUSABLE.into());
        }
        Ok(Some(proxy))
    }

    /// Whether no proxy was set.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

// === impl Proxied ===

impl<C> Service<Uri> for Proxied<C>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        // The readied service makes this connection, and its clone the next one.
        let another = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, another);
        let (proxy, next) = (self.proxies.of(&target), self.proxies.advice());
        Box::pin(async move {
            let Some(proxy) = proxy? else {
                return ready.call(target).await.map_err(Into::into);
            };
            let connected = ready.call(proxy.uri().clone()).await.map_err(Into::into);
            let connected = connected.map_err(|error| named(error, &proxy, UNREACHED, next))?;
            let tunnel = tunnel(connected, &proxy, &target).await;
            tunnel.map_err(|error| named(error, &proxy, NO_PROXY, next))
        })
    }
}

/// Names the proxy in an error that does not. One of the limits keeps its kind.
fn named(error: BoxError, proxy: &Intercept, what: &str, next: &'static str) -> BoxError {
    let is_own = |link: &(dyn std::error::Error + 'static)| {
        link.is::<Error>() || link.is::<tower_tds_limits::Error>()
    };
    if chain(&*error).any(is_own) {
        return error;
    }
    let proxy = proxy.uri().authority().map_or("", Authority::as_str);
    let cause = chain(&*error).last().map(ToString::to_string);
    let text = format!(
        "the proxy http://{proxy} {what}: {}",
        cause.unwrap_or_default()
    );
    let error = Error::new(Kind::Connect, text).with_sent(Sent::Never);
    error.with_advice(next).into()
}

/// Requests a tunnel to the target, and returns the connection for it.
async fn tunnel<T>(connected: T, proxy: &Intercept, target: &Uri) -> Result<T, BoxError>
where
    T: Read + Write + Unpin + Send + 'static,
{
    let host = target.host().unwrap_or_default();
    let host = format!("{host}:{}", target.port_u16().unwrap_or(443));
    let mut request = Request::connect(&*host).header(HOST, &*host);
    if let Some(credentials) = proxy.basic_auth() {
        request = request.header(PROXY_AUTHORIZATION, credentials);
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let (mut sender, connection) = http1::handshake(connected).await?;
    // Dropping the sender ends the connection of a refused request.
    let status = async move { Ok(sender.send_request(request).await?.status()) };
    let (status, parts) = try_join(status, connection.without_shutdown()).await?;
    if status.is_success() {
        return Ok(parts.io);
    }
    let (kind, next) = match status {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => (Kind::Rejected, PASSWORD),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => (Kind::Connect, LATER),
        status if status.is_client_error() => (Kind::Rejected, ALLOW),
        _ => (Kind::Connect, LATER),
    };
    let proxy = proxy.uri().authority().map_or("", Authority::as_str);
    let refused = format!(
        "the proxy http://{proxy} refused the tunnel (status {})",
        status.as_str()
    );
    let error = Error::new(kind, refused).with_sent(Sent::Never);
    Err(error.with_advice(next).into())
}

const UNREACHED: &str = "cannot be reached";

const NO_PROXY: &str = "is no HTTP proxy";

const PASSWORD: &str = "check user and password of the proxy";

const ALLOW: &str = "have the proxy allow this host, or exempt it in NO_PROXY";

const LATER: &str = "check that the proxy reaches this host, then retry";

const UNUSABLE: &str = "write it as http://host:port; TLS goes through its tunnel";
