//! The kinds of failures, in one table with their consequences, and the reasons to give up.

use std::fmt;
use std::time::Duration;

/// Whether a failed request can have reached the service.
///
/// A limiter uses it to return unused permits at once. The retry layer uses it to decide whether to
/// resend a request that is not idempotent. [`Error::new`](crate::Error::new) keeps `Answered` and
/// `Unknown` of an error of this crate in its source; otherwise the given kind decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sent {
    /// The service responded, so it has received and counted the request.
    Answered,
    /// Nothing of the request reached the service, or the server reports that it processed none of
    /// it.
    Never,
    /// The request may have arrived, and there is no response.
    #[default]
    Unknown,
}

/// The retry rule of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// A retry cannot help.
    Never,
    /// Once and at once: a layer below gets a new token or another connection.
    Once,
    /// Once, with full jitter.
    OnceLater,
    /// With full jitter.
    Backoff,
    /// With full jitter after a second of silence.
    Silence,
    /// With full jitter after the requested wait, or after a second of silence if there is none.
    Quota,
}

/// The reason why the retry layer made no further attempt.
///
/// Its text is a stable name, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GiveUp {
    /// Another attempt cannot help, or the one remedy failed: a second refused token.
    Fatal,
    /// The attempts are used up.
    Attempts,
    /// The deadline has passed, or leaves no time for the next wait.
    Deadline,
    /// The service requests a longer wait than the layer allows; see
    /// [`Error::retry_after`](crate::Error::retry_after).
    HintTooLong,
    /// The budget of retries is used up.
    Budget,
    /// The body cannot be sent twice.
    NotReplayable,
    /// The request may have arrived, and its method may not run twice; see
    /// [`Repeat`](crate::Repeat).
    NotIdempotent,
    /// The service below failed to become ready again, or there is no runtime to wait in.
    NotReady,
    /// A layer below or the request itself forbids a retry.
    Forbidden,
}

/// The properties of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) advice: Advice,
    /// Whether the request can have reached the service, if there is no response.
    pub(crate) sent: Sent,
    /// The message: what happened, and what to do next.
    pub(crate) what: &'static str,
    pub(crate) next: &'static str,
}

/// One table makes the type, the list and the rows.
macro_rules! kinds {
    ($(#[$about:meta])* pub enum Kind { $(
        $(#[$doc:meta])+
        $kind:ident: $name:literal, $advice:ident, $sent:ident, $what:literal, $next:literal;
    )+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])+ $kind,)+
        }

        impl Kind {
            /// Every kind, for tables and metrics that are set up ahead.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            pub(crate) const fn row(self) -> Row {
                match self {
                    $(Self::$kind => Row {
                        name: $name,
                        advice: Advice::$advice,
                        sent: Sent::$sent,
                        what: $what,
                        next: $next,
                    },)+
                }
            }
        }
    };
}

kinds! {
    /// The kind of a failure. Two failures differ in kind if a program reacts differently to them.
    ///
    /// The status alone, or the type of a transport error, decides it; texts only refine it. The
    /// crate's front page has a table with the retry rule of each kind.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_tds_errors::Kind;
    ///
    /// assert_eq!(Kind::MissingRole.as_str(), "missing_role");
    /// assert_eq!(Kind::RateExceeded.to_string(), "rate_exceeded");
    /// ```
    pub enum Kind {
        /// The request arrived without its token. No token is invalidated.
        MissingCredentials: "missing_credentials", Never, Answered,
            "request arrived without a token",
            "check whether a proxy removes the Authorization header; if none was sent, send a token";
        /// The token is invalid, revoked or expired. The token layer gets a new one.
        InvalidToken: "invalid_token", Once, Answered,
            "token invalid or expired",
            "get a new token; if that fails too, check realm and clock";
        /// A 401 without a reason. The token layer treats it as it treats an invalid token.
        Unauthorized: "unauthorized", Once, Answered,
            "token refused without a reason",
            "get a new token; if that fails too, check the key on the service's site";
        /// The token is valid, but lacks the role for this kind of data. A person has to grant it.
        MissingRole: "missing_role", Never, Answered,
            "token lacks the role for this data",
            "request the role for the member that owns the key";
        /// No token is available at the moment. The token endpoint is at fault, not the service.
        TokenUnavailable: "token_unavailable", Backoff, Never,
            "no token available",
            "retry later";
        /// No token is available until the configuration changes: the client credentials or the
        /// token endpoint are wrong. That ends a job.
        TokenRefused: "token_refused", Never, Never,
            "token request refused",
            "check client id and secret";
        /// More calls than the key may make (429). The limiter pauses this key.
        Throttled: "throttled", Quota, Answered,
            "quota used up",
            "wait until the quota resets";
        /// The key has used up its calls for longer than a minute (429). That ends a job.
        QuotaExhausted: "quota_exhausted", Quota, Answered,
            "quota used up for more than a minute",
            "retry when the quota resets";
        /// More requests a second than the address may send (423). The limiter slows the address.
        RateExceeded: "rate_exceeded", Silence, Answered,
            "too many requests per second from this IP address",
            "send nothing for a second, then more slowly; share one limiter";
        /// More connections than the address may hold (416 without `Range`). The limiter opens fewer
        /// for a while.
        ConnectionLimit: "connection_limit", Backoff, Answered,
            "too many connections from this IP address",
            "close some, or share one client; another key does not help";
        /// A range outside the resource, or too many connections: a 416 to a request with `Range`,
        /// without a `Content-Range`. It is retried once, because it may be either.
        RangeUnclear: "range_unclear", OnceLater, Answered,
            "range outside the resource, or too many connections",
            "check the range; share one client";
        /// A limit of this process gave no permit in time, or shed the request. This program is too
        /// fast.
        LimitTimeout: "limit_timeout", Backoff, Never,
            "no permit in time",
            "send fewer requests at once, or allow a longer wait";
        /// The service or its gateway fails, or takes too long (5xx, 408, 425; a gateway that
        /// cannot check tokens). The failure is transient.
        Unavailable: "unavailable", Backoff, Answered,
            "service unavailable",
            "retry later";
        /// The connection led to a server that is not responsible (421).
        Misdirected: "misdirected", Once, Answered,
            "connection led to the wrong server",
            "retry on a new connection";
        /// A redirect, a page or a network's login in place of data. An address is wrong.
        UnexpectedAnswer: "unexpected_answer", Never, Answered,
            "redirect or HTML page instead of data",
            "check the base URL; a login page means a missing token, or a network with a login";
        /// There is no such resource (404, 410). Programs skip it.
        NotFound: "not_found", Never, Answered,
            "no such resource",
            "check the path";
        /// Any other refusal: see the status.
        Rejected: "rejected", Never, Answered,
            "request rejected",
            "change the request";
        /// The request is invalid and cannot be sent. The caller is at fault.
        InvalidRequest: "invalid_request", Never, Never,
            "request cannot be sent",
            "use an absolute URI, a scheme that the client supports, and a body that does not fail";
        /// There was no connection, or it closed before it took the request. The request was not
        /// sent.
        Connect: "connect", Backoff, Never,
            "connection failed",
            "check host and network, then retry";
        /// The TLS handshake failed: a certificate, a version, a name. A retry cannot help.
        Tls: "tls", Never, Never,
            "TLS handshake failed",
            "check certificates, clock and host name, and that the server speaks https";
        /// No response in time. The service may have received the request.
        Timeout: "timeout", Backoff, Unknown,
            "no response in time",
            "retry, request less, or allow more time";
        /// The connection ended before the response. It may have been idle in a pool.
        Reset: "reset", Backoff, Unknown,
            "connection closed before the response",
            "retry if the request may run twice";
        /// The response ended early, or stalled, after its head. The caller has a part of the body.
        Truncated: "truncated", Backoff, Unknown,
            "response ended early",
            "fetch it again, and discard the part";
        /// The response is not HTTP, or not in the coding that it declares.
        Malformed: "malformed", Never, Unknown,
            "malformed response",
            "check scheme, host, port and coding";
        /// An error of a type that this crate does not know.
        #[default]
        Unrecognized: "unrecognized", Never, Unknown,
            "the request failed",
            "see the source of this error";
    }
}

// === impl Kind ===

impl Kind {
    /// The stable name, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Advice ===

impl Advice {
    /// Whether a second failure of this kind is final.
    pub(crate) const fn is_once(self) -> bool {
        matches!(self, Self::Once | Self::OnceLater)
    }
}

// === impl GiveUp ===

impl GiveUp {
    /// The phrase of a message; empty for a fatal failure.
    pub(crate) const fn phrase(self) -> &'static str {
        self.row().1
    }

    const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Fatal => ("fatal", ""),
            Self::Attempts => ("attempts", "; all attempts are used up"),
            Self::Deadline => ("deadline", "; the deadline leaves no time for more"),
            Self::HintTooLong => (
                "hint_too_long",
                "; the asked wait is too long to sleep through",
            ),
            Self::Budget => ("budget", "; not retried as too many requests fail"),
            Self::NotReplayable => (
                "not_replayable",
                "; not retried as the body cannot be sent twice",
            ),
            Self::NotIdempotent => (
                "not_idempotent",
                "; not retried as the method may not run twice",
            ),
            Self::NotReady => (
                "not_ready",
                "; the service below did not become ready again",
            ),
            Self::Forbidden => ("forbidden", "; not retried as that is forbidden"),
        }
    }
}

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}

/// The least wait after a 423. Each counter of the service forgets within a second. A request in
/// that second may count, even if it is refused.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
