//! Through a proxy's tunnel (RFC 9110, section 9.3.6), or straight there.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use hyper::rt::{Read, Write};
use hyper_util::client::{legacy::connect::proxy::Tunnel, proxy::matcher::Matcher};
use tower::{BoxError, Layer};
use tower_service::Service;

/// Which proxies there are.
#[derive(Clone, Default)]
pub(crate) enum Proxies {
    #[default]
    None,
    /// One for all addresses.
    One(Arc<Matcher>),
    /// Those of the environment.
    Named(Arc<Matcher>),
    /// Set twice, so that one would be ignored.
    Twice,
}

/// A connector whose connections lead through proxies.
#[derive(Clone)]
pub(crate) struct Proxied<C> {
    inner: C,
    proxies: Proxies,
}

// === impl Proxies ===

impl Proxies {
    /// One for all addresses.
    pub(crate) fn one(url: &str) -> Self {
        Self::One(Arc::new(Matcher::builder().all(url).build()))
    }

    /// Those that the environment names, as curl reads it.
    pub(crate) fn from_env() -> Self {
        Self::Named(Arc::new(Matcher::from_env()))
    }

    /// This setting after another.
    pub(crate) fn or(self, before: &Self) -> Self {
        if before.is_none() { self } else { Self::Twice }
    }

    /// The proxy for `target`, if there is one, and what it is shown.
    fn of(&self, target: &Uri) -> Result<Option<Tunnelled>, BoxError> {
        // Plain http is for this machine alone, and a proxy leads away from it.
        if target.scheme() == Some(&Scheme::HTTP) {
            return Ok(None);
        }
        let proxy = match self {
            Self::None | Self::Twice => return Ok(None),
            // What cannot be read as an address would be no proxy at all.
            Self::One(all) => Some(all.intercept(target).ok_or(UNUSABLE)?),
            Self::Named(some) => some.intercept(target),
        };
        let Some(proxy) = proxy else {
            return Ok(None);
        };
        // A port that is none would be 80, and be shown the credentials.
        let has_port = |address: &Authority| address.as_str() != address.host();
        let is_broken =
            proxy.uri().port_u16().is_none() && proxy.uri().authority().is_some_and(has_port);
        if is_broken || proxy.uri().scheme() != Some(&Scheme::HTTP) {
            return Err(UNUSABLE.into());
        }
        Ok(Some(Tunnelled {
            proxy: proxy.uri().clone(),
            shown: proxy.basic_auth().cloned(),
        }))
    }

    /// Whether nothing was set.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether what was set can be used for `target`.
    pub(crate) fn check(&self, target: &Uri) -> Result<(), BoxError> {
        match self {
            Self::One(_) if target.scheme() == Some(&Scheme::HTTP) => return Err(LEADS_AWAY.into()),
            // hyper-util reads no proxies there: a request's header could name one (httpoxy).
            Self::Named(_) if std::env::var_os("REQUEST_METHOD").is_some() => {
                return Err(IN_CGI.into());
            }
            Self::Named(_) => NAMES.into_iter().try_for_each(|name| {
                // What cannot be read would be no proxy at all, and is not shown: it may have a password.
                match std::env::var(name) {
                    Ok(url) if !url.is_empty() && !is_readable(&url) => {
                        Err(format!("{name} cannot be read: {UNUSABLE}"))
                    }
                    Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not text")),
                    Ok(_) | Err(std::env::VarError::NotPresent) => Ok(()),
                }
            })?,
            Self::Twice => return Err(TWICE.into()),
            Self::None | Self::One(_) => {}
        }
        self.of(target).map(drop)
    }
}

impl<C> Layer<C> for Proxies {
    type Service = Proxied<C>;

    fn layer(&self, inner: C) -> Proxied<C> {
        Proxied {
            inner,
            proxies: self.clone(),
        }
    }
}

/// Without addresses, which may have passwords.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::One(_) => "One",
            Self::Named(_) => "Named",
            Self::Twice => "Twice",
        })
    }
}

/// A proxy, and the credentials that it is shown.
struct Tunnelled {
    proxy: Uri,
    shown: Option<http::HeaderValue>,
}

// === impl Proxied ===

impl<C> Service<Uri> for Proxied<C>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone,
    C::Response: Read + Write + Unpin + Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        match self.proxies.of(&target) {
            Ok(None) => {
                let connecting = self.inner.call(target);
                Box::pin(async move { connecting.await.map_err(Into::into) })
            }
            Ok(Some(Tunnelled { proxy, shown })) => {
                // The one that is ready goes, and another is made ready for whoever comes next.
                let another = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, another);
                let mut tunnel = Tunnel::new(proxy, ready);
                if let Some(shown) = shown {
                    tunnel = tunnel.with_auth(shown);
                }
                let connecting = tunnel.call(target);
                Box::pin(async move { connecting.await.map_err(Into::into) })
            }
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }
}

impl<C> fmt::Debug for Proxied<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxied").finish_non_exhaustive()
    }
}

const UNUSABLE: &str = "write it as http://host:port; what it tunnels is encrypted all the same";

const TWICE: &str =
    "it is set twice, and one of the two would be ignored: give the one that is meant";

const LEADS_AWAY: &str =
    "plain http is for this machine alone, and a proxy leads away from it: leave one of them out";

const IN_CGI: &str = "the environment's proxies are not read in a CGI program, which REQUEST_METHOD tells: give one by \
     Builder::proxy";

/// Of an encrypted address, as curl reads them.
const NAMES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

fn is_readable(url: &str) -> bool {
    let target = Uri::from_static("https://example.org");
    Matcher::builder()
        .all(url)
        .build()
        .intercept(&target)
        .is_some()
}

#[cfg(test)]
mod tests;
