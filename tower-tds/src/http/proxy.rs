//! Connections through a proxy's tunnel (RFC 9110, section 9.3.6), or without one.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use hyper::rt::{Read, Write};
use hyper_util::client::{
    legacy::connect::proxy::Tunnel,
    proxy::matcher::{Intercept, Matcher},
};
use tower::BoxError;
use tower_service::Service;

/// The proxies of a client.
#[derive(Clone, Default)]
pub(crate) enum Proxies {
    #[default]
    None,
    /// One for all addresses.
    One(Arc<Matcher>),
    /// The proxies of the environment.
    Named(Arc<Matcher>),
}

/// A connector through proxies.
#[derive(Clone)]
pub(crate) struct Proxied<C> {
    pub(crate) inner: C,
    pub(crate) proxies: Proxies,
}

// === impl Proxies ===

impl Proxies {
    /// One for all addresses.
    pub(crate) fn one(url: &str) -> Self {
        Self::One(Arc::new(Matcher::builder().all(url).build()))
    }

    /// Reads the proxies of the environment, as curl does.
    pub(crate) fn from_env() -> Self {
        Self::Named(Arc::new(Matcher::from_env()))
    }

    /// The proxy for `target`, if there is one.
    pub(crate) fn of(&self, target: &Uri) -> Result<Option<Intercept>, BoxError> {
        // Plain http is allowed to this machine alone, and needs no proxy.
        if target.scheme() == Some(&Scheme::HTTP) {
            return Ok(None);
        }
        let proxy = match self {
            Self::None => None,
            // The matcher returns no proxy if it cannot parse the address of the proxy.
            Self::One(all) => Some(all.intercept(target).ok_or(UNUSABLE)?),
            Self::Named(some) => some.intercept(target),
        };
        let Some(proxy) = proxy else {
            return Ok(None);
        };
        // In place of an invalid port the connector would use port 80, and send the credentials to
        // it unencrypted. To a proxy that expects TLS it would send them unencrypted as well.
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
        let proxy = self.proxies.of(&target);
        Box::pin(async move {
            let Some(proxy) = proxy? else {
                return ready.call(target).await.map_err(Into::into);
            };
            let mut tunnel = Tunnel::new(proxy.uri().clone(), ready);
            if let Some(credentials) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(credentials.clone());
            }
            tunnel.call(target).await.map_err(Into::into)
        })
    }
}

const UNUSABLE: &str = "write it as http://host:port; TLS goes through its tunnel";

#[cfg(test)]
mod tests;
