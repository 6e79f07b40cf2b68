//! The table behind [`Kind`]: name, what happened, what to do, how to retry, what was sent.
//!
//! One row a kind, so the file is as long as the list is.

use super::Kind;
use crate::sent::Sent::{self, Answered, Never, Unknown};

/// How a kind is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Trying again cannot help.
    Never,
    /// Once and at once: the layer below has the cure, a new token.
    Once,
    /// Once, with full jitter: it passes if it is about connections, and else it does not.
    OnceLater,
    /// With full jitter.
    Backoff,
    /// With full jitter after a second of silence.
    Silence,
    /// With the long backoff for used-up quotas, after a second of silence.
    Quota,
}

// === impl Advice ===

impl Advice {
    /// Whether a second failure of such a kind is final.
    pub(crate) const fn is_once(self) -> bool {
        matches!(self, Self::Once | Self::OnceLater)
    }
}

/// What is known of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) next: &'static str,
    pub(crate) advice: Advice,
    pub(crate) sent: Sent,
}

const fn new(
    name: &'static str,
    advice: Advice,
    sent: Sent,
    what: &'static str,
    next: &'static str,
) -> Row {
    Row {
        name,
        what,
        next,
        advice,
        sent,
    }
}

#[rustfmt::skip] // A table reads in columns.
pub(super) const fn row(kind: Kind) -> Row {
    use Advice::{Backoff, Once, OnceLater, Quota, Silence};
    const NO: Advice = Advice::Never;
    match kind {
        Kind::MissingCredentials => new("missing_credentials", NO, Answered,
            "the request carried no token", "put a token layer inside the retry layer"),
        Kind::InvalidToken => new("invalid_token", Once, Answered,
            "the token is invalid or expired", "get a new token; if a new one fails too, check realm and clock"),
        Kind::MissingRole => new("missing_role", NO, Answered,
            "the token lacks the role for this data", "have the role granted to the member that owns the key"),
        Kind::IdentityUnavailable => new("identity_unavailable", Backoff, Answered,
            "the gateway could not check the token", "keep the token and try again later"),
        Kind::Unauthorized => new("unauthorized", Once, Answered,
            "the service refused the credentials without saying why", "get a new token; if a new one fails too, check the key on the service's site"),
        Kind::TokenUnavailable => new("token_unavailable", Backoff, Never,
            "no token could be had", "try again later"),
        Kind::TokenRefused => new("token_refused", NO, Never,
            "the client credentials were refused", "check client id and secret"),
        Kind::Throttled => new("throttled", Quota, Answered,
            "the key has used up its calls", "wait until the quota resets"),
        Kind::QuotaExhausted => new("quota_exhausted", Quota, Answered,
            "the key has used up its calls for an hour or longer", "come back when the quota resets"),
        Kind::RateExceeded => new("rate_exceeded", Silence, Answered,
            "too many requests a second from this address", "send nothing for a second, then slower; share one limiter"),
        Kind::ConnectionLimit => new("connection_limit", Backoff, Answered,
            "too many connections from this address", "close some, or share one client; another key does not help"),
        Kind::LimitTimeout => new("limit_timeout", Backoff, Never,
            "no permit was free in time", "send less at once, or allow a longer wait"),
        Kind::Unavailable => new("unavailable", Backoff, Answered,
            "the service is failing", "try again later"),
        Kind::ServerTimeout => new("server_timeout", Backoff, Answered,
            "the service took too long", "try again later, or ask for less"),
        Kind::TooEarly => new("too_early", Backoff, Answered,
            "the service will not take an early request", "try again"),
        Kind::RangeNotSatisfiable => new("range_not_satisfiable", NO, Answered,
            "the range lies outside the resource", "ask for a range inside it"),
        Kind::RangeUnclear => new("range_unclear", OnceLater, Answered,
            "the range lies outside the resource, or there are too many connections", "check the range; share one client"),
        Kind::Locked => new("locked", NO, Answered,
            "the resource is locked", "wait until the lock's owner releases it"),
        Kind::Misdirected => new("misdirected", Once, Answered,
            "the connection led to a server that is not responsible", "try again on a new connection"),
        Kind::CaptivePortal => new("captive_portal", NO, Answered,
            "a network on the way wants a login", "log in to that network, or use another"),
        Kind::UnexpectedContent => new("unexpected_content", NO, Answered,
            "a page came where data was asked for", "check the base url; a login page means a missing token"),
        Kind::UnexpectedRedirect => new("unexpected_redirect", NO, Answered,
            "the service redirects elsewhere", "check the base url; a login page means a missing token"),
        Kind::Forbidden => new("forbidden", NO, Answered,
            "the service refuses this request", "check what the key may do"),
        Kind::NotFound => new("not_found", NO, Answered,
            "there is no such resource", "check the path"),
        Kind::Rejected => new("rejected", NO, Answered,
            "the service rejects this request", "change the request"),
        Kind::InvalidRequest => new("invalid_request", NO, Unknown,
            "the request cannot be sent as it is", "use an absolute uri, a scheme that the client speaks, and a body that does not fail"),
        Kind::Connect => new("connect", Backoff, Never,
            "no connection could be made", "check host and network, then try again"),
        Kind::Dns => new("dns", Backoff, Never,
            "the host's name could not be resolved", "check the host name and the network, then try again"),
        Kind::Proxy => new("proxy", NO, Never,
            "a proxy on the way refused", "check the proxy and its credentials"),
        Kind::ConnectTimeout => new("connect_timeout", Backoff, Never,
            "no connection could be made in time", "check host and network, then try again"),
        Kind::Tls => new("tls", NO, Never,
            "the tls handshake failed", "check certificates, clock and host name, and that https is spoken there"),
        Kind::Unsent => new("unsent", Backoff, Never,
            "the connection went away before the request", "try again"),
        Kind::StreamRefused => new("stream_refused", Backoff, Never,
            "the server refused the stream unprocessed", "try again"),
        Kind::GoAway => new("go_away", Backoff, Never,
            "the server closes the connection and left the request unprocessed", "try again"),
        Kind::Timeout => new("timeout", Backoff, Unknown,
            "no answer came in time", "try again, ask for less, or allow more time"),
        Kind::Reset => new("reset", Backoff, Unknown,
            "the connection was reset before an answer", "try again if the request may run twice"),
        Kind::Incomplete => new("incomplete", Backoff, Unknown,
            "the connection closed before an answer", "try again if the request may run twice"),
        Kind::Truncated => new("truncated", Backoff, Unknown,
            "the answer ended early", "fetch it again, and discard the part"),
        Kind::BodyReset => new("body_reset", Backoff, Unknown,
            "the connection was reset inside the answer", "fetch it again, and discard the part"),
        Kind::Stalled => new("stalled", Backoff, Unknown,
            "the answer did not go on in time", "fetch it again, ask for less, or allow more time"),
        Kind::Decode => new("decode", NO, Unknown,
            "the answer's body is not in the coding it declares", "ask for another coding, or for none"),
        Kind::Malformed => new("malformed", NO, Unknown,
            "the answer is not http", "check scheme, host and port"),
        Kind::Unrecognized => new("unrecognized", NO, Unknown,
            "the request failed", "see the source of this error"),
    }
}

pub(super) const ALL: &[Kind] = &[
    Kind::MissingCredentials,
    Kind::InvalidToken,
    Kind::MissingRole,
    Kind::IdentityUnavailable,
    Kind::Unauthorized,
    Kind::TokenUnavailable,
    Kind::TokenRefused,
    Kind::Throttled,
    Kind::QuotaExhausted,
    Kind::RateExceeded,
    Kind::ConnectionLimit,
    Kind::LimitTimeout,
    Kind::Unavailable,
    Kind::ServerTimeout,
    Kind::TooEarly,
    Kind::RangeNotSatisfiable,
    Kind::RangeUnclear,
    Kind::Locked,
    Kind::Misdirected,
    Kind::CaptivePortal,
    Kind::UnexpectedContent,
    Kind::UnexpectedRedirect,
    Kind::Forbidden,
    Kind::NotFound,
    Kind::Rejected,
    Kind::InvalidRequest,
    Kind::Connect,
    Kind::Dns,
    Kind::Proxy,
    Kind::ConnectTimeout,
    Kind::Tls,
    Kind::Unsent,
    Kind::StreamRefused,
    Kind::GoAway,
    Kind::Timeout,
    Kind::Reset,
    Kind::Incomplete,
    Kind::Truncated,
    Kind::BodyReset,
    Kind::Stalled,
    Kind::Decode,
    Kind::Malformed,
    Kind::Unrecognized,
];
