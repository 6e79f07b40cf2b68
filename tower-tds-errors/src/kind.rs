//! Kinds of failures, in one table with their consequences, and the reasons to give up.

use std::fmt;
use std::time::Duration;

use tower_tds_outcome::{Cause, Outcome, Sent};

/// Retry rule of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// A retry cannot help.
    Never,
    /// One retry without a wait, because a layer below gets a new token or another connection.
    Once,
    /// Retries after random waits (full jitter).
    Backoff,
    /// Retries after a second and jitter.
    Silence,
    /// Retries after the requested wait, or after a second if there is none, and jitter.
    Quota,
}

/// Why the retry layer made no further attempt.
///
/// `Display` prints a stable name, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GiveUp {
    /// Another attempt cannot help, or the only allowed retry failed, for example with a second
    /// refused token.
    Fatal,
    /// All attempts are used up.
    Attempts,
    /// No time is left for the next wait, or the deadline has passed.
    Deadline,
    /// The service requests a longer wait than the layer allows; see
    /// [`Error::retry_after`](crate::Error::retry_after).
    HintTooLong,
    /// The budget of retries is used up.
    Budget,
    /// The body of the request cannot be sent twice.
    NotReplayable,
    /// The request may have been carried out, and its method is not idempotent; see
    /// [`Repeat`](crate::Repeat).
    NotIdempotent,
    /// No attempt could begin, because the service below failed to become ready.
    NotReady,
    /// Some layer below, or the request itself, forbids a retry.
    Forbidden,
}

/// Properties of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) advice: Advice,
    /// Its meaning for the token and the limits, if there is no response.
    pub(crate) outcome: Outcome,
    /// Texts of the message: what happened, and what to do next.
    pub(crate) what: &'static str,
    pub(crate) next: &'static str,
}

/// Generates `Kind`, `Kind::ALL` and `Kind::row` from one table.
macro_rules! kinds {
    ($(#[$about:meta])* enum Kind { $(
        $(#[$doc:meta])+
        $kind:ident: $name:literal, $advice:ident, $outcome:expr, $what:literal, $next:literal;
    )+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])+ $kind,)+
        }

        impl Kind {
            /// All kinds, for example to register metrics in advance.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            pub(crate) const fn row(self) -> Row {
                match self {
                    $(Self::$kind => Row {
                        name: $name,
                        advice: Advice::$advice,
                        outcome: $outcome,
                        what: $what,
                        next: $next,
                    },)+
                }
            }
        }
    };
}

kinds! {
    /// The kind of a failure. Failures differ in kind where your program should react differently.
    ///
    /// The status, or the type of a transport error, decides the kind; texts only refine it. For
    /// the retry rule of each kind, see the table on the [front page](crate). "The token layer" and
    /// "the limiter" are those of tower-oidc-cc and tower-tds-limits, if your stack has them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_tds_errors::Kind;
    ///
    /// assert_eq!(Kind::MissingRole.as_str(), "missing_role");
    /// assert_eq!(Kind::RateExceeded.to_string(), "rate_exceeded");
    /// ```
    enum Kind {
        /// The request arrived without its token, because something on the way strips the header.
        /// The token layer keeps its token.
        MissingCredentials: "missing_credentials", Never, Outcome::NoHeader,
            "request arrived without a token",
            "check whether a proxy removes the Authorization header; if none was sent, send a token";
        /// The token is invalid, revoked or expired, or the service gave no reason for its 401. The
        /// token layer gets a new one.
        InvalidToken: "invalid_token", Once, Outcome::TokenRefused,
            "token refused",
            "get a new token; if that fails too, check realm, clock and the key on the service's site";
        /// The token is valid, but lacks the role for this kind of data. Have your administrator
        /// grant it.
        MissingRole: "missing_role", Never, Outcome::RoleMissing,
            "token lacks the role for this data",
            "request the role for the member that owns the key";
        /// No token is available at the moment: the token endpoint fails, not the service.
        TokenUnavailable: "token_unavailable", Backoff, Outcome::NoToken,
            "no token available",
            "retry later";
        /// No token is available until the configuration changes: the client credentials or the
        /// address of the token endpoint are wrong. It [ends a job](crate::Error::ends_the_job).
        TokenRefused: "token_refused", Never, Outcome::TokenDenied,
            "token request refused",
            "check client id and secret";
        /// You made more calls than the quota of your API key allows (429). The limiter pauses the
        /// calls of the layer that got it.
        Throttled: "throttled", Quota, Outcome::QuotaExceeded(None),
            "quota used up",
            "wait until the quota resets";
        /// The quota is used up for longer than a minute (429). It [ends a
        /// job](crate::Error::ends_the_job).
        QuotaExhausted: "quota_exhausted", Quota, Outcome::QuotaExceeded(None),
            "quota used up for more than a minute",
            "retry when the quota resets";
        /// Your IP address sent more requests per second than it may (423). The limiter slows down.
        RateExceeded: "rate_exceeded", Silence, Outcome::RateExceeded,
            "too many requests per second from this IP address",
            "send nothing for a second, then fewer requests; share one limiter";
        /// Your IP address holds more connections than it may (416 without `Content-Range`, to a
        /// request without `Range`). The limiter opens fewer for a while.
        ConnectionLimit: "connection_limit", Backoff, Outcome::ConnectionsExceeded,
            "too many connections from this IP address",
            "close connections, or share one client; another key does not help";
        /// A limit of this process gave no permit in time, or shed the request: your program sends
        /// more requests than its limits allow.
        LimitTimeout: "limit_timeout", Backoff, Outcome::NoPermit,
            "no permit in time",
            "send fewer requests at once, or allow a longer wait";
        /// The service or its gateway failed or took too long (most 5xx, 408, 421, 425), or the
        /// gateway could not check the token. The failure is transient.
        Unavailable: "unavailable", Backoff, Outcome::Other,
            "service unavailable",
            "retry later";
        /// A redirect, an upgrade, an HTML page or the login page of a captive portal came in place
        /// of data.
        UnexpectedResponse: "unexpected_response", Never, Outcome::Other,
            "redirect, upgrade or HTML page instead of data",
            "check the base URL; a login page means a missing token or a captive portal";
        /// There is no such resource (404, 410).
        NotFound: "not_found", Never, Outcome::Other,
            "no such resource",
            "check the path";
        /// The service refused the request for any other reason: see the status.
        Rejected: "rejected", Never, Outcome::Other,
            "request rejected",
            "change the request";
        /// The request is invalid and cannot be sent: correct the call.
        InvalidRequest: "invalid_request", Never, Outcome::AddressNotAllowed,
            "request cannot be sent",
            "use an absolute URI, a scheme that the client supports, and a body that does not fail";
        /// No connection was made, or it closed before it took the request. Nothing was sent.
        Connect: "connect", Backoff, Outcome::Unsent,
            "connection failed",
            "check host and network, then retry";
        /// The TLS handshake failed, for example because of a wrong certificate, version or host
        /// name. Retries cannot help.
        Tls: "tls", Never, Outcome::Unsent,
            "TLS handshake failed",
            "check certificates, clock and host name, and that the server speaks https";
        /// No response came in time. The service may have received the request.
        Timeout: "timeout", Backoff, Outcome::Lost,
            "no response in time",
            "retry, request less, or allow more time";
        /// The connection ended before the response, for example because it had been idle in a pool.
        Reset: "reset", Backoff, Outcome::Lost,
            "connection closed before the response",
            "retry if the request may run twice";
        /// The body of the response ended early or stalled. You have a part of it.
        Truncated: "truncated", Backoff, Outcome::Lost,
            "response ended early",
            "discard the partial body and fetch it again";
        /// The response is not valid HTTP, or its body is not in the declared content coding.
        Malformed: "malformed", Never, Outcome::Lost,
            "malformed response",
            "check scheme, host, port and coding";
        /// The response is larger than your program allows to be read at once.
        TooLarge: "too_large", Never, Outcome::Other,
            "response is too large",
            "read it in parts, with `chunk`";
        /// An error of a type that this crate does not know.
        #[default]
        Unrecognized: "unrecognized", Never, Outcome::Lost,
            "the request failed",
            "see the source of this error";
    }
}

// === impl Kind ===

impl Kind {
    /// Returns the stable name, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Whether the request can have reached the service, if there is no response.
    pub(crate) fn sent(self) -> Sent {
        Cause::new(self.row().outcome).sent
    }

    /// Returns the kind of a failure that a layer explains: the first one that means its outcome.
    pub(crate) fn of(cause: &Cause) -> Self {
        let outcome = match cause.outcome {
            // A program should stop its job rather than sleep for more than a minute, so this is
            // another kind.
            Outcome::QuotaExceeded(wait) if wait.or(cause.wait) > Some(MINUTE) => {
                return Self::QuotaExhausted;
            }
            Outcome::QuotaExceeded(_) => Outcome::QuotaExceeded(None),
            Outcome::GatewayTimedOut => return Self::Unavailable,
            // Any kind of response may mean it.
            Outcome::Other => return Self::Unrecognized,
            outcome => outcome,
        };
        let mut kinds = Self::ALL.iter().copied();
        let known = kinds.find(|kind| kind.row().outcome == outcome);
        known.unwrap_or_default()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl GiveUp ===

impl GiveUp {
    /// Returns the end of an error's text. It is empty for a fatal failure.
    pub(crate) const fn phrase(self) -> &'static str {
        self.row().1
    }

    const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Fatal => ("fatal", ""),
            Self::Attempts => ("attempts", "; all attempts are used up"),
            Self::Deadline => ("deadline", "; the deadline leaves no time for a retry"),
            Self::HintTooLong => (
                "hint_too_long",
                "; not retried because the requested wait is too long",
            ),
            Self::Budget => (
                "budget",
                "; not retried because the retry budget is used up",
            ),
            Self::NotReplayable => (
                "not_replayable",
                "; not retried because the body cannot be sent twice",
            ),
            Self::NotIdempotent => (
                "not_idempotent",
                "; not retried because the method is not idempotent",
            ),
            Self::NotReady => (
                "not_ready",
                "; the service below did not become ready again",
            ),
            Self::Forbidden => ("forbidden", "; not retried because a retry is forbidden"),
        }
    }
}

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}

/// Longest window that is worth a wait. Kong's next longer window is an hour.
const MINUTE: Duration = Duration::from_secs(60);

/// Minimum wait after a 423: the interval of the service's limit. Within it, even a refused request
/// may count.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
