//! Proxies on the way to the service, from `--proxy` or from the environment.

use http::{Uri, uri::Scheme};
use hyper_util::client::proxy::matcher::Matcher;
use tower_tds::Builder;
use tower_tds_outcome::is_loopback;

use crate::settings::{PROXY, Settings};

impl Settings {
    /// Adds the proxy of `--proxy`, which is for all addresses, or those of the environment.
    pub(crate) fn routed(&self, builder: Builder) -> Builder {
        match self.value(PROXY) {
            Some(url) => builder.proxy(url),
            None => builder.env_proxies(),
        }
    }

    /// Returns the proxy for each address, without its credentials. Addresses are named by their
    /// settings. A proxy of the environment is never used for this machine.
    pub(crate) fn routes(
        &self,
        addresses: [(&'static str, &str); 2],
    ) -> Vec<(&'static str, String)> {
        let (proxies, source) = match self.value(PROXY) {
            Some(url) => (Matcher::builder().all(url).build(), PROXY),
            None => (Matcher::from_env(), "environment"),
        };
        let proxy = |address: &str| {
            // Other addresses are left to the client, which refuses them. It sends plain http to
            // this machine alone.
            let uri = address.parse::<Uri>().ok()?;
            let is_here = uri.host().is_some_and(is_loopback);
            if uri.scheme() != Some(&Scheme::HTTPS) || (source != PROXY && is_here) {
                return None;
            }
            let proxy = proxies.intercept(&uri)?;
            Some(format!("{} ({source})", proxy.uri().authority()?))
        };
        let shown = |address| proxy(address).unwrap_or_else(|| "none".to_owned());
        addresses
            .map(|(name, address)| (name, shown(address)))
            .into()
    }
}
