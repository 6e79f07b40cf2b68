//! The proxies on the way to the service: of `--proxy`, or of the environment.

use std::net::IpAddr;

use http::{Uri, uri::Scheme};
use hyper_util::client::proxy::matcher::Matcher;
use tower_tds::Builder;

use crate::{
    exit::Failure,
    settings::{PROXY, Settings},
};

/// The proxy of each address, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Of the setting, for all addresses.
    one: Option<String>,
    is_of_environment: bool,
    /// The setting that names an address, and the proxy of that address.
    all: Vec<(&'static str, Option<Uri>)>,
}

// === impl Routes ===

impl Routes {
    /// Finds the routes to these addresses, named by their settings.
    ///
    /// # Errors
    /// If the environment's proxy would get the calls to this machine as well as those to the
    /// service.
    pub(crate) fn of(
        settings: &Settings,
        addresses: [(&'static str, &str); 2],
    ) -> Result<Self, Failure> {
        let one = settings.value(PROXY).map(str::to_owned);
        let proxies = match &one {
            Some(url) => Matcher::builder().all(&**url).build(),
            None => Matcher::from_env(),
        };
        let (mut all, mut here) = (Vec::new(), None);
        for (name, address) in addresses {
            // The client refuses what is no address, and sends plain http to this machine alone.
            let uri = address.parse::<Uri>().ok();
            let uri = uri.filter(|uri| uri.scheme() == Some(&Scheme::HTTPS));
            let proxy = uri.as_ref().and_then(|uri| proxies.intercept(uri));
            let proxy = proxy.map(|proxy| proxy.uri().clone());
            let is_here = one.is_none()
                && uri
                    .as_ref()
                    .and_then(Uri::host)
                    .is_some_and(is_this_machine);
            if is_here && proxy.is_some() {
                here = Some(name);
            }
            all.push((name, proxy.filter(|_| !is_here)));
        }
        let is_used = all.iter().any(|(_, proxy)| proxy.is_some());
        match here {
            Some(name) if is_used => Err(Failure::usage(format!(
                "{name} is on this machine, and the environment's proxy is for others: add the \
                 address to NO_PROXY"
            ))),
            here => Ok(Self {
                // A discovered endpoint may be elsewhere.
                is_of_environment: one.is_none() && here.is_none(),
                one,
                all,
            }),
        }
    }

    pub(crate) fn on(&self, builder: Builder) -> Builder {
        match &self.one {
            Some(url) => builder.proxy(url),
            None if self.is_of_environment => builder.env_proxies(),
            None => builder,
        }
    }

    /// The setting that names an address, and the proxy of that address without credentials.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, String)> {
        let source = self.one.as_ref().map_or("environment", |_| PROXY);
        self.all.iter().map(move |(name, proxy)| {
            let proxy = proxy.as_ref().and_then(Uri::authority);
            let shown = proxy.map(|proxy| format!("{proxy} ({source})"));
            (*name, shown.unwrap_or_else(|| "none".to_owned()))
        })
    }
}

/// Whether a host is this machine, by its address or as `localhost`.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}
