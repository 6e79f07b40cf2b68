//! Outcomes of calls: the table that reads them from statuses, and the error that carries them up through the layers.

use std::{
    error::Error,
    fmt, io, iter,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, Response, StatusCode, header};

use crate::retry_after::retry_after;

#[cfg(test)]
mod tests;

/// The meaning of a call's result: for the token that it carried, and for the limits that count it.
///
/// | outcome of a call | read as |
/// |---|---|
/// | 2xx, 304 | `Accepted` |
/// | 401 | `TokenRefused`, whatever its text, unless `WWW-Authenticate` names one of the next two |
/// | 401 or 403, the challenge names a missing role or scope | `RoleMissing` |
/// | 401, the challenge names a missing header or token | `NoHeader` |
/// | gRPC with `grpc-status` 16 in the head | `TokenRefused` |
/// | gRPC with `grpc-status` 7 in the head | `RoleMissing` |
/// | gRPC with `grpc-status` 2, 4, 8, 13 or 14 in the head | `Other` |
/// | 416 without `Content-Range` (a 416 with that header refuses a range: RFC 9110, section 15.5.17) | `ConnectionsExceeded` |
/// | 423 | `RateExceeded` |
/// | 429 | `QuotaExceeded`, with the wait of [`retry_after`] |
/// | 504 | `GatewayTimedOut` |
/// | any other response | `Other` |
/// | an error that carries a [`Cause`] | the outcome of the first one in its chain |
/// | any other error | `Lost`, unless a layer knows its type |
///
/// For 401, 416, 423 and 429 the table follows the public transport data service that these crates are written for. For
/// all other statuses it follows HTTP. If your service differs, put the outcome into the extensions of such responses,
/// below the layers that read it:
///
/// ```
/// use http::Response;
/// use tower_tds_outcome::Outcome;
///
/// /// For tower's `map_response`: this service refuses tokens with 498.
/// fn with_outcome<B>(mut response: Response<B>) -> Response<B> {
///     if response.status().as_u16() == 498 {
///         response.extensions_mut().insert(Outcome::TokenRefused);
///     }
///     response
/// }
/// # let response = Response::builder().status(498).body(()).expect("a valid status");
/// # assert_eq!(Outcome::of_response(&with_outcome(response)), Outcome::TokenRefused);
/// ```
///
/// The same goes for an error, whose outcome is in a [`Cause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The service answered, and accepted the token.
    Accepted,
    /// The service refused the token as invalid. A new one may help.
    TokenRefused,
    /// The token is valid, but lacks a role.
    RoleMissing,
    /// The request arrived without its token, so something on the way removed it.
    NoHeader,
    /// This IP address sent more requests per second than it may.
    RateExceeded,
    /// This IP address holds more connections than it may.
    ConnectionsExceeded,
    /// The quota of the credential is used up. If the server named a wait, you find it here.
    QuotaExceeded(Option<Duration>),
    /// A gateway gave up waiting, while the service may still be working on the request.
    GatewayTimedOut,
    /// The request never reached the service, so no limit counts it.
    Unsent,
    /// No answer came, though the request may have arrived.
    Lost,
    /// The service or a gateway answered in some other way. This shows nothing about the token, because a gateway may
    /// answer before it checks one.
    Other,
}

/// Carries the outcome of a call in the chain of an error's sources, so that each layer above can read it.
///
/// Return it from the [`source`](Error::source) of your own error type:
///
/// ```
/// use std::{error::Error, fmt};
/// use tower_tds_outcome::{Cause, Outcome};
///
/// #[derive(Debug)]
/// struct SpeedingTicket(Cause);
///
/// impl fmt::Display for SpeedingTicket {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("too fast")
///     }
/// }
///
/// impl Error for SpeedingTicket {
///     fn source(&self) -> Option<&(dyn Error + 'static)> {
///         Some(&self.0)
///     }
/// }
///
/// let error = SpeedingTicket(Cause::new(Outcome::RateExceeded, None));
/// assert_eq!(Outcome::of_error(&error), Some(Outcome::RateExceeded));
/// ```
#[derive(Debug)]
pub struct Cause {
    outcome: Outcome,
    source: Option<BoxError>,
}

/// Boxed error, as tower's own layers return it.
type BoxError = Box<dyn Error + Send + Sync>;

// === impl Outcome ===

impl Outcome {
    /// Reads a response: the outcome in its extensions, or else its head.
    #[inline]
    pub fn of_response<B>(response: &Response<B>) -> Self {
        let own = response.extensions().get::<Self>();
        own.copied()
            .unwrap_or_else(|| Self::of_head(response.status(), response.headers(), wall))
    }

    /// Reads the head of a response.
    ///
    /// Calls `now` only for a 429: its wait may be a date, and then it counts from `now` if the response has no `Date`.
    #[inline]
    pub fn of_head(
        status: StatusCode,
        headers: &HeaderMap,
        now: impl FnOnce() -> SystemTime,
    ) -> Self {
        if status.is_success() {
            // A scan of a few names is faster than a hash.
            let is_grpc = headers.keys().any(|name| *name == GRPC_STATUS);
            return if is_grpc {
                of_grpc(headers)
            } else {
                Self::Accepted
            };
        }
        of_refusal(status, headers, now)
    }

    /// Returns the outcome that an error carries: that of the first [`Cause`] in its chain.
    #[must_use]
    pub fn of_error(error: &(dyn Error + 'static)) -> Option<Self> {
        chain(error).find_map(|link| link.downcast_ref::<Cause>().map(Cause::outcome))
    }

    /// Reads the text of a 401 or 403, from its body or from a parameter of its challenge: is the token invalid, or is
    /// a role or the header missing? Returns `None` for a text that is not known.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches('.');
        let starts = |known: &&str| {
            let start = text.get(..known.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(known))
        };
        if NO_HEADER.iter().any(starts) {
            Some(Self::NoHeader)
        } else if ROLE_MISSING.iter().any(starts) {
            Some(Self::RoleMissing)
        } else {
            // These count only as the whole text, because a text about a failed check may contain them as well.
            let is_dead = |known: &&str| text.eq_ignore_ascii_case(known);
            DEAD.iter().any(is_dead).then_some(Self::TokenRefused)
        }
    }
}

// === impl Cause ===

impl Cause {
    /// Creates a link with this outcome, in front of `source`, the error that led to it.
    #[must_use]
    pub fn new(outcome: Outcome, source: Option<BoxError>) -> Self {
        Self { outcome, source }
    }

    /// Returns the outcome of the call.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Replaces the outcome, for example because a layer above knows more about the failure.
    pub const fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Returns the error behind the outcome, if there is one.
    #[must_use]
    pub fn get_ref(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.outcome {
            Outcome::Accepted => "the service accepted the request",
            Outcome::TokenRefused => "the service refused the token",
            Outcome::RoleMissing => "the token lacks a role",
            Outcome::NoHeader => "the request arrived without its token",
            Outcome::RateExceeded => "more requests a second than allowed",
            Outcome::ConnectionsExceeded => "more connections than allowed",
            Outcome::QuotaExceeded(_) => "the quota is used up",
            Outcome::GatewayTimedOut => "a gateway gave up on the service",
            Outcome::Unsent => "the request was not sent",
            Outcome::Lost => "no answer to the request",
            Outcome::Other => "the service refused the request",
        })
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = self.source.as_deref()?;
        Some(source)
    }
}

/// Iterates over an error and its causes.
///
/// `io::Error::source` skips the error that it wraps, which may be that of TLS; this iterator does not. It ends after
/// 32 links, in case a chain leads back to itself.
pub fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |error| below(*error)).take(DEEPEST)
}

fn below<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let io = error.downcast_ref::<io::Error>();
    match io.and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Reads the head of a gRPC response, whose status is 200 even if the call was refused. A call that is refused before
/// its handler runs has `grpc-status` in the head (trailers-only). Any other has it in the trailers, which are not
/// read.
#[cold]
fn of_grpc(headers: &HeaderMap) -> Outcome {
    let value = |name| headers.get(name).map_or(&b""[..], |value| value.as_bytes());
    let kind = value(header::CONTENT_TYPE);
    let start = kind.get(..GRPC.len()).unwrap_or_default();
    if !start.eq_ignore_ascii_case(GRPC) {
        return Outcome::Accepted;
    }
    match value(GRPC_STATUS).trim_ascii() {
        b"16" => Outcome::TokenRefused,
        b"7" => Outcome::RoleMissing,
        b"2" | b"4" | b"8" | b"13" | b"14" => Outcome::Other,
        _ => Outcome::Accepted,
    }
}

#[cold]
fn of_refusal(
    status: StatusCode,
    headers: &HeaderMap,
    now: impl FnOnce() -> SystemTime,
) -> Outcome {
    match status.as_u16() {
        304 => Outcome::Accepted,
        401 => challenged(headers).unwrap_or(Outcome::TokenRefused),
        403 if challenged(headers) == Some(Outcome::RoleMissing) => Outcome::RoleMissing,
        416 if !headers.contains_key(header::CONTENT_RANGE) => Outcome::ConnectionsExceeded,
        423 => Outcome::RateExceeded,
        429 => Outcome::QuotaExceeded(retry_after(headers, now())),
        504 => Outcome::GatewayTimedOut,
        _ => Outcome::Other,
    }
}

/// Returns the outcome of the first parameter whose text is known. Not all gateways quote the values, and those that do
/// leave the quotes inside of them unescaped.
fn challenged(headers: &HeaderMap) -> Option<Outcome> {
    let challenges = headers.get_all(header::WWW_AUTHENTICATE).iter();
    let texts = challenges.map(|value| String::from_utf8_lossy(value.as_bytes()));
    texts.into_iter().find_map(|text| {
        let values = text.split('=').skip(1).map(str::trim_start);
        let mut values = values.map(|value| match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default(),
            None => value.split([',', ' ']).next().unwrap_or_default(),
        });
        values.find_map(Outcome::of_text)
    })
}

/// Returns the wall clock, from which a date counts if the response has no `Date` header.
fn wall() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "a date from a server has no meaning on a monotonic clock"
    )]
    SystemTime::now()
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

const GRPC: &[u8] = b"application/grpc";

/// Beginnings of texts about a missing header, as lua-resty-openidc and plugins of Kong send them.
const NO_HEADER: [&str; 3] = [
    "no authorization header found",
    "no bearer authorization header value found",
    "no bearer access token value found",
];

/// Texts about an invalid or expired token: those of Kong's plugins, and the error code of RFC 6750, section 3.1.
const DEAD: [&str; 5] = [
    "invalid token",
    "invalid_token",
    "invalid cached token",
    "jwt expired",
    "token expired",
];

/// Beginnings of texts about a missing role: of the service, as its contract has it, of a plugin of Kong, and the error
/// code of RFC 6750, section 3.1.
const ROLE_MISSING: [&str; 3] = [
    "access token does not have the required scope/role",
    "missing required ",
    "insufficient_scope",
];

/// Several times the deepest known chain, which has 7 links.
const DEEPEST: usize = 32;
