//! Origins (RFC 6454), and which requests get the token.

use std::{fmt, net::IpAddr};

use http::{
    HeaderMap, HeaderValue, Uri,
    header::HOST,
    uri::{Authority, Scheme},
};

use crate::{ConfigError, error::Kind};

#[cfg(test)]
mod tests;

/// A server that may see the token: a scheme, a host and a port.
///
/// A request is let through only if all three are equal, the host in any case of letters and the
/// port with the scheme's default filled in. Nothing is normalised beyond that: a trailing dot,
/// user information or another spelling of an address make it another origin, and the request is
/// refused.
///
/// # Examples
///
/// ```
/// use http::Uri;
/// use tower_oidc_cc::Origin;
///
/// let origin = Origin::from_uri(&Uri::from_static("https://API.example.com/base/path"))?;
/// assert_eq!(origin.to_string(), "https://api.example.com:443");
/// assert!(Origin::from_uri(&Uri::from_static("http://api.example.com")).is_err());
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: Scheme,
    host: Box<str>,
    port: u16,
    /// Host and port, as an address usually spells them: the fast path of each call.
    authority: Box<str>,
}

/// The origins whose requests get the token.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// These; a request names its own.
    Listed(Box<[Origin]>),
    /// This one, also for requests that name none.
    One(Origin),
    /// All.
    Any,
}

// === impl Places ===

impl Places {
    /// Checks that a request may carry the token.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Kind> {
        let is_listed = match self {
            Self::Listed(origins) => origins.iter().any(|origin| origin.contains(uri)),
            Self::One(origin) => origin.contains(uri) || uri.authority().is_none(),
            Self::Any => true,
        };
        if !is_listed {
            return Err(match uri.authority() {
                Some(_) => Kind::ForeignOrigin,
                None => Kind::NoOrigin,
            });
        }
        // Most clients write this header below. A scan of a few names takes less time than a hash.
        if headers.keys().any(|name| name == HOST) && !self.fits_host(uri, headers) {
            return Err(Kind::OtherHost);
        }
        Ok(())
    }

    #[cold]
    fn fits_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        match self {
            Self::One(origin) if uri.authority().is_none() => hosts.all(|it| origin.is_named(it)),
            _ if uri.authority().is_none() => true,
            _ => hosts.all(|host| names(host, uri)),
        }
    }
}

// === impl Origin ===

impl Origin {
    /// Takes the origin of an https address; its path and query do not matter.
    ///
    /// # Errors
    ///
    /// If the address is not https, is not absolute, or carries user information.
    pub fn from_uri(uri: &Uri) -> Result<Self, ConfigError> {
        let origin = Self::parse(uri)?;
        if origin.scheme != Scheme::HTTPS {
            return Err(ConfigError::new(
                "only https keeps a token secret: use an https address (plain http is for this \
                 machine alone, by `loopback`)",
            ));
        }
        Ok(origin)
    }

    /// Takes the origin of an https address, or of a plain http one on this machine.
    ///
    /// Use it in development and tests. Loopback is `localhost`, `127.0.0.0/8` and `[::1]`.
    ///
    /// # Errors
    ///
    /// If the address is plain http on another host, is not absolute, or carries user information.
    pub fn loopback(uri: &Uri) -> Result<Self, ConfigError> {
        let origin = Self::parse(uri)?;
        if origin.scheme == Scheme::HTTP && !origin.is_loopback() {
            return Err(ConfigError::new(
                "plain http is for this machine alone: use an https address, or a loopback host",
            ));
        }
        Ok(origin)
    }

    fn parse(uri: &Uri) -> Result<Self, ConfigError> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(ConfigError::new(
                "the address has no scheme or host: use an absolute one, https://host",
            ));
        };
        let Some(default) = default_port(scheme) else {
            return Err(ConfigError::new(
                "the address is neither http nor https: use an https address",
            ));
        };
        let Some(port) = port(authority, default) else {
            return Err(ConfigError::new(
                "the address has user information or a broken port: use https://host or \
                 https://host:port",
            ));
        };
        if authority.host().is_empty() {
            return Err(ConfigError::new(
                "the address has no host: use https://host or https://host:port",
            ));
        }
        let host = authority.host().to_ascii_lowercase();
        let suffix = (port != default).then(|| format!(":{port}"));
        Ok(Self {
            scheme: scheme.clone(),
            authority: (host.clone() + &suffix.unwrap_or_default()).into(),
            host: host.into(),
            port,
        })
    }

    /// Whether `uri` has this origin.
    pub(crate) fn contains(&self, uri: &Uri) -> bool {
        uri.scheme() == Some(&self.scheme) && uri.authority().is_some_and(|it| self.is_spelt(it))
    }

    /// The port, unless it is the scheme's default.
    #[cfg(feature = "private-key-jwt")]
    pub(crate) fn port(&self) -> Option<u16> {
        (default_port(&self.scheme) != Some(self.port)).then_some(self.port)
    }

    /// Whether `authority` is this one, in any case, with or without a default port.
    #[inline]
    fn is_spelt(&self, authority: &Authority) -> bool {
        *authority.as_str() == *self.authority || self.is_alike(authority)
    }

    #[cold]
    fn is_alike(&self, authority: &Authority) -> bool {
        authority.host().eq_ignore_ascii_case(&self.host)
            && default_port(&self.scheme).and_then(|it| port(authority, it)) == Some(self.port)
    }

    /// Whether a `Host` header names this one.
    fn is_named(&self, host: &HeaderValue) -> bool {
        let authority = Authority::try_from(host.as_bytes());
        authority.is_ok_and(|authority| self.is_spelt(&authority))
    }

    fn is_loopback(&self) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        *self.host == *"localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({self})")
    }
}

/// Whether a `Host` header names the authority of the address (RFC 9110, section 7.2), with or
/// without a default port.
fn names(host: &HeaderValue, uri: &Uri) -> bool {
    let (Ok(host), Some(authority)) = (Authority::try_from(host.as_bytes()), uri.authority())
    else {
        return false;
    };
    let default = uri.scheme().and_then(default_port).unwrap_or_default();
    host.host().eq_ignore_ascii_case(authority.host())
        && port(&host, default).is_some_and(|it| Some(it) == port(authority, default))
}

fn default_port(scheme: &Scheme) -> Option<u16> {
    match scheme.as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

/// The port, if the authority is `host` or `host:port` and nothing else.
///
/// `Authority::port` is `None` for a port that is no number as well as for none at all, and `host`
/// skips user information. A comparison of lengths finds both.
fn port(authority: &Authority, default: u16) -> Option<u16> {
    let host = authority.host().len();
    match authority.port() {
        None => (authority.as_str().len() == host).then_some(default),
        Some(port) => {
            let whole = host + 1 + port.as_str().len();
            (authority.as_str().len() == whole).then_some(port.as_u16())
        }
    }
}
