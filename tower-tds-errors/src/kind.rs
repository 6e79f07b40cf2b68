//! The kinds of failures: one table of what follows from each, read by everything else.

use std::fmt;

/// Says whether a failed request can have reached the service.
///
/// A limiter reads it to know which permits come back at once; the retry layer reads it to know
/// whether a request that may not run twice may be sent again. No rule and no nest improves it, nor does
/// [`Error::new`](crate::Error::new) around an error that has one of this crate inside; around any other the
/// kind that it is given decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sent {
    /// The service answered, so it has seen and counted the request.
    Answered,
    /// Nothing of the request reached the service, or the server says that it processed none of it.
    Never,
    /// It may have arrived, and no answer tells.
    #[default]
    Unknown,
}

/// How a kind is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Trying again cannot help.
    Never,
    /// Once and at once: a layer below has the cure, a new token or another connection.
    Once,
    /// Once, with full jitter.
    OnceLater,
    /// With full jitter.
    Backoff,
    /// With full jitter after a second of silence.
    Silence,
    /// With full jitter after the wait that is asked for, or else after a second of silence.
    Quota,
}

/// What is known of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) advice: Advice,
    /// Where no answer came: whether the request can have reached the service.
    pub(crate) sent: Sent,
    /// What happened, and what to do next, for people.
    pub(crate) what: &'static str,
    pub(crate) next: &'static str,
}

/// The type, the list and the rows are one table.
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
    /// Names what went wrong, as far as somebody acts on the difference.
    ///
    /// The status alone, or the type of a transport error, decides it; texts only refine it. The crate's
    /// front page has the table with how each is retried and what to do about it.
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
        /// The request came without its token. No token is at fault, so none is thrown away.
        MissingCredentials: "missing_credentials", Never, Answered,
            "the request came without its token",
            "see whether a proxy on the way strips the authorization header; if none was sent, send a token";
        /// The token is invalid, revoked or expired. The token layer has the cure.
        InvalidToken: "invalid_token", Once, Answered,
            "the token is invalid or expired",
            "get a new token; if a new one fails too, check realm and clock";
        /// A 401 that does not say why. The token layer doubts the token, and throws none away.
        Unauthorized: "unauthorized", Once, Answered,
            "the service refused the credentials without saying why",
            "get a new token; if a new one fails too, check the key on the service's site";
        /// The token is good, but lacks the role for this kind of data. A person has to grant it.
        MissingRole: "missing_role", Never, Answered,
            "the token lacks the role for this data",
            "have the role granted to the member that owns the key";
        /// No token could be had just now. The token endpoint is at fault, not the service.
        TokenUnavailable: "token_unavailable", Backoff, Never,
            "no token could be had",
            "try again later";
        /// No token will be had before somebody changes something: the client credentials were refused, or the
        /// token endpoint is another. That ends a job.
        TokenRefused: "token_refused", Never, Never,
            "no token can be had as things are set",
            "check client id and secret";
        /// More calls than the key may make (429). The limiter pauses this key.
        Throttled: "throttled", Quota, Answered,
            "the key has used up its calls",
            "wait until the quota resets";
        /// The key has used up its calls for longer than a minute (429). That ends a job.
        QuotaExhausted: "quota_exhausted", Quota, Answered,
            "the key has used up its calls for longer than a minute",
            "come back when the quota resets";
        /// More requests a second than the address may send (423). The limiter slows the address.
        RateExceeded: "rate_exceeded", Silence, Answered,
            "too many requests a second from this address",
            "send nothing for a second, then slower; share one limiter";
        /// More connections than the address may hold (416 without `Range`). The limiter sheds some.
        ConnectionLimit: "connection_limit", Backoff, Answered,
            "too many connections from this address",
            "close some, or share one client; another key does not help";
        /// A range outside the resource, or too many connections: a 416 to a request with `Range`, without
        /// the `Content-Range` that would tell. It is tried once more, since it may be either.
        RangeUnclear: "range_unclear", OnceLater, Answered,
            "the range lies outside the resource, or there are too many connections",
            "check the range; share one client";
        /// A limit on this side gave no permit in time, or shed the request. This program is too fast.
        LimitTimeout: "limit_timeout", Backoff, Never,
            "no permit was free in time",
            "send less at once, or allow a longer wait";
        /// The service or its gateway fails, or takes too long (5xx, 408, 425; a gateway that cannot check
        /// tokens). Time mends it.
        Unavailable: "unavailable", Backoff, Answered,
            "the service is failing",
            "try again later";
        /// The connection led to a server that is not responsible (421). It takes another connection.
        Misdirected: "misdirected", Once, Answered,
            "the connection led to a server that is not responsible",
            "try again on a new connection";
        /// A redirect, a page or a network's login, where data was asked for. An address is wrong.
        UnexpectedAnswer: "unexpected_answer", Never, Answered,
            "a redirect or a page came where data was asked for",
            "check the base url; a login page means a missing token, or a network that wants a login";
        /// There is no such resource (404, 410). Programs skip it.
        NotFound: "not_found", Never, Answered,
            "there is no such resource",
            "check the path";
        /// Any other refusal: see the status.
        Rejected: "rejected", Never, Answered,
            "the service rejects this request",
            "change the request";
        /// The call was never one that can be made, or not so. Its caller is at fault.
        InvalidRequest: "invalid_request", Never, Never,
            "the call cannot be made as it is",
            "use an absolute uri, a scheme that the client speaks, and a body that does not fail";
        /// No connection, or none that took the request. It was never sent, whatever its method.
        Connect: "connect", Backoff, Never,
            "no connection could be made",
            "check host and network, then try again";
        /// The TLS handshake failed: a certificate, a version, a name. Trying again changes nothing.
        Tls: "tls", Never, Never,
            "the tls handshake failed",
            "check certificates, clock and host name, and that https is spoken there";
        /// No answer came in time. The service may have seen the request.
        Timeout: "timeout", Backoff, Unknown,
            "no answer came in time",
            "try again, ask for less, or allow more time";
        /// The connection ended before the answer. A pool's idle connection may have: once more at once.
        Reset: "reset", Backoff, Unknown,
            "the connection ended before an answer",
            "try again if the request may run twice";
        /// The answer broke off, or went silent, after its head. Its caller has the part.
        Truncated: "truncated", Backoff, Unknown,
            "the answer broke off",
            "fetch it again, and discard the part";
        /// The answer is not HTTP, or not in the coding that it declares.
        Malformed: "malformed", Never, Unknown,
            "the answer is not what it says that it is",
            "check scheme, host and port, or ask for another coding";
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
    /// Whether a second failure of such a kind is final.
    pub(crate) const fn is_once(self) -> bool {
        matches!(self, Self::Once | Self::OnceLater)
    }
}

#[cfg(test)]
mod tests;
