//! What a failure is, and what follows from that alone: one table, read by everything else.

use std::fmt;

use self::table::{Advice, Row, row};
use crate::sent::Sent;

pub(crate) mod table;

/// Names what went wrong, as far as the caller's next move differs.
///
/// A kind is decided by the status alone, or by the type of a transport error; texts only refine
/// it. The crate's front page has the table with what to do about each.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::Kind;
///
/// assert_eq!(Kind::MissingRole.as_str(), "missing_role");
/// assert!(!Kind::MissingRole.is_retryable());
/// assert!(Kind::RateExceeded.is_retryable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request carried no token.
    MissingCredentials,
    /// The token is invalid, revoked or expired.
    InvalidToken,
    /// The token is good, but lacks the role for this kind of data.
    MissingRole,
    /// The gateway could not check the token, because its own identity server fails.
    IdentityUnavailable,
    /// A 401 that does not say why.
    Unauthorized,
    /// No token could be had just now.
    TokenUnavailable,
    /// The client credentials were refused.
    TokenRefused,
    /// More calls than the key may make (429), in a window of a minute at most, as far as is known.
    Throttled,
    /// The key has used up its calls for an hour, a day or longer (429 with headers that say so).
    QuotaExhausted,
    /// More requests a second than the address may send (423).
    RateExceeded,
    /// More connections at once than the address may hold (416 to a request without `Range`).
    ConnectionLimit,
    /// A limit on this side gave no permit in time, or shed the request at once.
    LimitTimeout,
    /// The service or its gateway fails (500, 502, 503, 520 and their like).
    Unavailable,
    /// The service or its gateway took too long (408, 504, 522, 524).
    ServerTimeout,
    /// The service will not risk an early request (425).
    TooEarly,
    /// The asked range lies outside the resource (416 with `Content-Range` to a request with
    /// `Range`).
    RangeNotSatisfiable,
    /// Either a range outside the resource or too many connections (416 to a request with `Range`,
    /// without the `Content-Range` that would tell).
    RangeUnclear,
    /// The resource is locked by somebody (423 as RFC 4918 means it).
    Locked,
    /// The connection led to a server that is not responsible (421).
    Misdirected,
    /// A network on the way wants a login first (511).
    CaptivePortal,
    /// A page for people where data was asked for (2xx `text/html` to a request that accepts JSON
    /// or XML only).
    UnexpectedContent,
    /// A redirect that nothing followed: often a login page.
    UnexpectedRedirect,
    /// The service understood, and refuses (403).
    Forbidden,
    /// There is no such resource (404, 410).
    NotFound,
    /// Any other refusal: see the status.
    Rejected,
    /// The request was never valid: a relative URI, or a body that failed while it was read.
    InvalidRequest,
    /// No connection could be made.
    Connect,
    /// The host's name could not be resolved.
    Dns,
    /// A proxy on the way refused or failed (407, or no tunnel).
    Proxy,
    /// No connection could be made in time.
    ConnectTimeout,
    /// The TLS handshake failed: a certificate, a version, a name.
    Tls,
    /// The connection went away before the request was written to it.
    Unsent,
    /// The server refused the HTTP/2 stream before it processed anything.
    StreamRefused,
    /// The server closes the HTTP/2 connection, and has not processed the request.
    GoAway,
    /// No answer came in time.
    Timeout,
    /// The connection was reset before the head of the answer.
    Reset,
    /// The connection was closed before the head of the answer was complete.
    Incomplete,
    /// The connection ended inside the answer.
    Truncated,
    /// The connection was reset inside the answer's body.
    BodyReset,
    /// The answer's body did not go on in time.
    Stalled,
    /// The answer's body is not what its coding says.
    Decode,
    /// The answer is not HTTP.
    Malformed,
    /// An error of a type that this crate does not know.
    Unrecognized,
}

// === impl Kind ===

impl Kind {
    /// Every kind, for tables and metrics that are set up ahead.
    pub const ALL: &'static [Self] = table::ALL;

    /// The stable name, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Whether the same request, sent again, may succeed.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        !matches!(self.row().advice, Advice::Never)
    }

    /// Whether it is about the token or the credentials.
    #[must_use]
    pub const fn is_auth(self) -> bool {
        matches!(
            self,
            Self::MissingCredentials
                | Self::InvalidToken
                | Self::MissingRole
                | Self::IdentityUnavailable
                | Self::Unauthorized
                | Self::TokenUnavailable
                | Self::TokenRefused
        )
    }

    /// Whether a limit of the service refused it: of the key, or of the address.
    #[must_use]
    pub const fn is_throttled(self) -> bool {
        matches!(
            self,
            Self::Throttled | Self::QuotaExhausted | Self::RateExceeded | Self::ConnectionLimit
        )
    }

    /// Whether no connection could be made.
    #[must_use]
    pub const fn is_connect(self) -> bool {
        matches!(
            self,
            Self::Connect | Self::Dns | Self::Proxy | Self::ConnectTimeout | Self::Tls
        )
    }

    /// Whether something took too long, on either side.
    #[must_use]
    pub const fn is_timeout(self) -> bool {
        matches!(
            self,
            Self::ServerTimeout
                | Self::LimitTimeout
                | Self::ConnectTimeout
                | Self::Timeout
                | Self::Stalled
        )
    }

    /// What a failure of this kind says about the request's having been sent.
    #[must_use]
    pub const fn sent(self) -> Sent {
        self.row().sent
    }

    pub(crate) const fn advice(self) -> Advice {
        self.row().advice
    }

    pub(crate) const fn row(self) -> Row {
        row(self)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
