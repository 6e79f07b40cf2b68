//! Origins (RFC 6454), and which requests get the token.

use std::{fmt, net::IpAddr};

use http::{
    HeaderMap, HeaderValue, Request, Uri,
    header::HOST,
    uri::{Authority, Scheme},
};

use crate::{ConfigError, TokenError, error::token::Kind, state::Call};

#[cfg(test)]
mod tests;

/// Names a server that may see the token: a scheme, a host and a port.
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
    /// The port that goes without saying. No two schemes here share one, so comparing it compares
    /// them.
    default: u16,
    /// How most requests spell host and port: compared first, since it needs no parsing.
    usual: Box<str>,
}

/// Says what becomes of a request to an origin that is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// It is not sent: [`TokenError::is_foreign_origin`].
    #[default]
    Refuse,
    /// It passes as it is, with no token. Like any other it waits for the token first, since
    /// readiness cannot see whose turn it is.
    Pass,
}

/// Which requests get the token, and what becomes of the others.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) places: Places,
    pub(crate) foreign: Foreign,
}

#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// To these; a request says where it goes.
    Listed(Box<[Origin]>),
    /// To this one, which is where requests go that do not say.
    One(Origin),
    /// Wherever the connection leads.
    Any,
}

// === impl Rules ===

impl Rules {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            places,
            foreign: Foreign::default(),
        }
    }

    /// The place of a request that gets the token.
    #[inline]
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> Result<Option<Call>, TokenError> {
        let place = self.places.place(request.uri(), request.headers());
        place.map_or_else(|kind| self.foreign(kind), |call| Ok(Some(call)))
    }

    #[cold]
    fn foreign(&self, kind: Kind) -> Result<Option<Call>, TokenError> {
        match self.foreign {
            Foreign::Refuse => Err(TokenError::new(kind)),
            Foreign::Pass => Ok(None),
        }
    }
}

// === impl Places ===

impl Places {
    /// The place that a request goes to, without its query: the same number for the same place. Or
    /// why it may not have the token.
    #[inline]
    fn place(&self, uri: &Uri, headers: &HeaderMap) -> Result<Call, Kind> {
        let host = has_host(headers);
        let authority = uri.authority();
        if host && authority.is_some() && !headers.get_all(HOST).iter().all(|host| names(host, uri))
        {
            return Err(Kind::OtherHost);
        }
        let origin = match self {
            Self::Listed(origins) => match origins.iter().position(|o| o.contains(uri)) {
                Some(number) => u64::try_from(number).unwrap_or_default(),
                None if authority.is_none() => return Err(Kind::NoOrigin),
                None => return Err(Kind::ForeignOrigin),
            },
            Self::One(origin) if authority.is_some() => {
                if !origin.contains(uri) {
                    return Err(Kind::ForeignOrigin);
                }
                0
            }
            Self::One(origin) => {
                let mut hosts = headers.get_all(HOST).iter();
                if host && !hosts.all(|host| origin.is_named(host)) {
                    return Err(Kind::OtherHost);
                }
                0
            }
            Self::Any => authority.map_or(0, |authority| mix(0, authority.as_str().as_bytes())),
        };
        Ok(mix(origin, uri.path().as_bytes()))
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
        let usual = if port == default {
            host.clone()
        } else {
            format!("{host}:{port}")
        };
        Ok(Self {
            scheme: scheme.clone(),
            host: host.into(),
            port,
            default,
            usual: usual.into(),
        })
    }

    /// Whether `uri` has this origin. No allocation: this is on the path of every request.
    #[inline]
    pub(crate) fn contains(&self, uri: &Uri) -> bool {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return false;
        };
        default_port(scheme) == Some(self.default)
            && (*authority.as_str() == *self.usual || self.is_spelt(authority))
    }

    /// The port, unless it goes without saying.
    #[cfg(feature = "_assertion")]
    pub(crate) fn port(&self) -> Option<u16> {
        (self.port != self.default).then_some(self.port)
    }

    /// Whether `authority` is another spelling of this one: another case, a port that goes without
    /// saying.
    fn is_spelt(&self, authority: &Authority) -> bool {
        authority.host().eq_ignore_ascii_case(&self.host)
            && port(authority, self.default) == Some(self.port)
    }

    /// Whether a `Host` header names this one.
    fn is_named(&self, host: &HeaderValue) -> bool {
        let authority = || Authority::try_from(host.as_bytes()).ok();
        host.as_bytes() == self.usual.as_bytes() || authority().is_some_and(|a| self.is_spelt(&a))
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

/// Whether there is a `Host` header. Most requests have none and few headers, whose names are
/// looked through sooner than a hash is made of one.
#[inline]
fn has_host(headers: &HeaderMap) -> bool {
    if headers.keys_len() <= FEW {
        headers.keys().any(|name| *name == HOST)
    } else {
        headers.contains_key(HOST)
    }
}

/// Whether a `Host` header names the authority of the address (RFC 9110, section 7.2), with or
/// without the port that goes without saying.
#[inline(never)]
fn names(host: &HeaderValue, uri: &Uri) -> bool {
    let same = |authority: &Authority| {
        let authority = authority.as_str().as_bytes();
        host.as_bytes() == authority && !authority.contains(&b'@')
    };
    uri.authority().is_some_and(same) || means(host, uri)
}

/// As [`names`], where it is written otherwise.
#[cold]
fn means(host: &HeaderValue, uri: &Uri) -> bool {
    let (Ok(host), Some(authority)) = (Authority::try_from(host.as_bytes()), uri.authority())
    else {
        return false;
    };
    let default = uri.scheme().and_then(default_port).unwrap_or_default();
    host.host().eq_ignore_ascii_case(authority.host())
        && port(&host, default).is_some_and(|it| Some(it) == port(authority, default))
}

#[inline]
fn default_port(scheme: &Scheme) -> Option<u16> {
    match scheme.as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

/// The port, if the authority is `host` or `host:port` and nothing else.
///
/// `Authority::port` is `None` for a port that is no number as well as for none at all, and
/// `host` steps over user information. Comparing lengths shuts both doors without a search.
fn port(authority: &Authority, default: u16) -> Option<u16> {
    let host = authority.host().len();
    match authority.port() {
        None => (authority.as_str().len() == host).then_some(default),
        Some(port) => {
            let whole = host.saturating_add(1).saturating_add(port.as_str().len());
            (authority.as_str().len() == whole).then_some(port.as_u16())
        }
    }
}

/// As rustc's own hash does it, eight bytes at a time: nobody gains by a collision here, which
/// costs a token request.
#[inline]
fn mix(mut state: u64, bytes: &[u8]) -> u64 {
    let mut step = |word: u64| state = (state.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        step(u64::from_le_bytes(*word));
    }
    // The last eight, some of them again: no loop over single bytes where there are eight.
    match bytes.last_chunk::<8>() {
        Some(last) => step(u64::from_le_bytes(*last)),
        None => rest.iter().for_each(|byte| step(u64::from(*byte))),
    }
    state
}

/// 2^64 divided by the golden ratio, made odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Requests with more headers than that are rare, and looked at by a hash.
const FEW: usize = 8;
