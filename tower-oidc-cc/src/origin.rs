//! Origins (RFC 6454), and which requests get the token.

use std::fmt;

use http::{
    HeaderMap, HeaderValue, Uri,
    header::HOST,
    uri::{Authority, Scheme},
};
use tower_tds_outcome::is_loopback;

use crate::error::{ConfigError, ErrorKind};

#[cfg(test)]
mod tests;

/// A server that may receive the token: a scheme, a host and a port.
///
/// Requests get the token only if all three are equal. The case of the host's letters does not matter, and a missing
/// port is the default port of the scheme. Nothing else is normalised: with a trailing dot, user information or another
/// spelling of the host, your request is refused.
///
/// # Examples
///
/// ```
/// use http::Uri;
/// use tower_oidc_cc::Origin;
///
/// let origin = Origin::from_uri(&Uri::from_static("https://API.example.com/base/path"))?;
/// assert_eq!(origin.to_string(), "https://api.example.com");
/// assert!(Origin::from_uri(&Uri::from_static("http://api.example.com")).is_err());
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: Scheme,
    /// Host and port in lower case, without a default port.
    authority: Authority,
}

/// Origins whose requests get the token.
#[derive(Clone, Debug)]
pub(crate) struct AllowedOrigins {
    pub(crate) origins: Box<[Origin]>,
    /// Origin of requests that have only a path.
    pub(crate) default_origin: Option<Origin>,
}

// === impl AllowedOrigins ===

impl AllowedOrigins {
    /// Checks that a request may carry the token.
    #[inline]
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ErrorKind> {
        let origin = self.origins.iter().find(|origin| origin.contains(uri));
        // Most clients add the `Host` header below this layer. A scan of a few names is faster than a hash.
        if origin.is_some() && !headers.keys().any(|name| name == HOST) {
            return Ok(());
        }
        self.check_rest(origin, uri, headers)
    }

    #[cold]
    fn check_rest(
        &self,
        origin: Option<&Origin>,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), ErrorKind> {
        let is_path = uri.authority().is_none();
        match origin.or(self.default_origin.as_ref().filter(|_| is_path)) {
            Some(origin) if headers.get_all(HOST).iter().all(|it| origin.is_named(it)) => Ok(()),
            Some(_) => Err(OTHER_HOST),
            None if is_path => Err(NO_ORIGIN),
            None => Err(FOREIGN),
        }
    }
}

// === impl Origin ===

impl Origin {
    /// Takes the origin of an https address; its path and query do not matter.
    ///
    /// In development and tests, plain http is accepted for this machine: `localhost`, `127.0.0.0/8` and `[::1]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is plain http on another host, is not absolute, or carries user information.
    pub fn from_uri(uri: &Uri) -> Result<Self, ConfigError> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(ConfigError::new(
                "the address has no scheme or host: use an absolute one, https://host",
            ));
        };
        if ![Scheme::HTTP, Scheme::HTTPS].contains(scheme) {
            return Err(ConfigError::new(
                "the address is neither http nor https: use an https address",
            ));
        }
        if *scheme == Scheme::HTTP && !is_loopback(authority.host()) {
            return Err(ConfigError::new(
                "plain http is only for this machine: use an https address, or a loopback host",
            ));
        }
        let authority = normal(scheme, authority).and_then(|it| Authority::try_from(it).ok());
        let Some(authority) = authority else {
            return Err(ConfigError::new(
                "the address has a malformed port, user information or no host: use https://host or \
                 https://host:port",
            ));
        };
        Ok(Self {
            scheme: scheme.clone(),
            authority,
        })
    }

    /// Completes an address that is only a path; any other one is returned as it is.
    ///
    /// Use it in a layer for a single server, above a client that requires absolute addresses.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Uri;
    /// use tower_oidc_cc::Origin;
    ///
    /// let origin = Origin::from_uri(&Uri::from_static("https://api.example.com"))?;
    /// let uri = origin.absolute(&Uri::from_static("/stops?line=307"));
    /// assert_eq!(uri, "https://api.example.com/stops?line=307");
    /// # Ok::<(), tower_oidc_cc::ConfigError>(())
    /// ```
    #[must_use]
    pub fn absolute(&self, uri: &Uri) -> Uri {
        if uri.authority().is_some() {
            return uri.clone();
        }
        let mut parts = uri.clone().into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        // A path has no parts that contradict an origin.
        Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
    }

    /// Whether `uri` has this origin.
    #[inline]
    pub(crate) fn contains(&self, uri: &Uri) -> bool {
        uri.scheme() == Some(&self.scheme) && uri.authority().is_some_and(|it| self.is_spelt(it))
    }

    /// Whether `authority` is that of this origin, in any letter case, with or without a default port.
    #[inline]
    fn is_spelt(&self, authority: &Authority) -> bool {
        let own = self.authority.as_str();
        authority.as_str() == own || normal(&self.scheme, authority).as_deref() == Some(own)
    }

    /// Whether a `Host` header names this origin (RFC 9110, section 7.2).
    fn is_named(&self, host: &HeaderValue) -> bool {
        let authority = Authority::try_from(host.as_bytes());
        authority.is_ok_and(|authority| self.is_spelt(&authority))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({self})")
    }
}

/// Returns the authority in lower case and without a default port, if it is only `host` or
/// `host:port`.
///
/// `Authority::port` is `None` both for a malformed port and for a missing one, and `host` skips user
/// information. A comparison of lengths detects a malformed port and user information.
fn normal(scheme: &Scheme, authority: &Authority) -> Option<String> {
    let (host, port) = (authority.host(), authority.port());
    let length = host.len() + port.as_ref().map_or(0, |port| 1 + port.as_str().len());
    if host.is_empty() || authority.as_str().len() != length {
        return None;
    }
    let port = port.map(|port| port.as_u16());
    let usual = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    let port = port.filter(|port| *port != usual);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some(host.to_ascii_lowercase() + &port)
}

const FOREIGN: ErrorKind = ErrorKind::Foreign(
    "the request goes to an origin that may not see the token",
    "use an address of the service, or add the origin to those of the layer",
);
const NO_ORIGIN: ErrorKind = ErrorKind::Foreign(
    "the address of the request is only a path, and the layer has no default origin",
    "use an absolute address, or build the layer with `for_origin`",
);
const OTHER_HOST: ErrorKind = ErrorKind::Foreign(
    "the Host header names another host than the address",
    "remove the Host header, which a proxy may have passed on: the HTTP client sets its own",
);
