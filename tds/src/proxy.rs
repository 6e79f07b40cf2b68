//! Proxies on the way to the service, from `--proxy` or from the environment.

use http::{Uri, uri::Scheme};
use hyper_util::client::proxy::matcher::Matcher;
use tower_tds::Builder;
use tower_tds_outcome::is_loopback;

use crate::settings::{PROXY, Settings};

/// Proxy for each address of the service, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Proxy of `--proxy`, which is for all addresses.
    one: Option<String>,
    /// For each address, the setting that names it and its proxy from the environment.
    all: Vec<(&'static str, Option<Uri>)>,
}

// === impl Routes ===

impl Routes {
    /// Finds the proxies for these addresses, which are named by their settings. A proxy of the
    /// environment is never used for this machine.
    pub(crate) fn of(settings: &Settings, addresses: [(&'static str, &str); 2]) -> Self {
        let one = settings.value(PROXY).map(str::to_owned);
        let proxies = match &one {
            Some(url) => Matcher::builder().all(&**url).build(),
            None => Matcher::from_env(),
        };
        let proxy = |address: &str| {
            // Other addresses are left to the client, which refuses them. It sends plain http to
            // this machine alone.
            let uri = address.parse::<Uri>().ok()?;
            let is_here = uri.host().is_some_and(is_loopback);
            if uri.scheme() != Some(&Scheme::HTTPS) || (one.is_none() && is_here) {
                return None;
            }
            Some(proxies.intercept(&uri)?.uri().clone())
        };
        let all = addresses.map(|(name, address)| (name, proxy(address)));
        Self {
            all: all.into(),
            one,
        }
    }

    pub(crate) fn on(&self, builder: Builder) -> Builder {
        match &self.one {
            Some(url) => builder.proxy(url),
            None => builder.env_proxies(),
        }
    }

    /// Returns each address with a proxy: the setting that names it, and the proxy without its
    /// credentials.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, String)> {
        let source = self.one.as_ref().map_or("environment", |_| PROXY);
        self.all.iter().map(move |(name, proxy)| {
            let proxy = proxy.as_ref().and_then(Uri::authority);
            let shown = proxy.map(|proxy| format!("{proxy} ({source})"));
            (*name, shown.unwrap_or_else(|| "none".to_owned()))
        })
    }
}
