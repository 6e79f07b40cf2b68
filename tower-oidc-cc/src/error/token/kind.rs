//! The kinds of token errors, and the words for each.

use std::fmt;

use http::StatusCode;

/// The text of a kind is fixed or a number: nothing that a server wrote is ever printed, since a
/// server may echo the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The HTTP client failed.
    Transport,
    /// The token request's own timeout passed.
    Timeout,
    /// The HTTP client was not ready to take the token request for as long as it may be.
    NotReady,
    /// The endpoint answered that it cannot answer now.
    Unavailable(StatusCode),
    /// The endpoint refused the credentials or the grant, with an OAuth error code.
    Rejected(StatusCode, &'static str),
    /// The endpoint wants the request elsewhere; credentials do not follow redirects.
    Redirected(StatusCode),
    /// The reply is no token reply, or a broken one; the next may be whole.
    Malformed(&'static str),
    /// The reply is whole, but its token cannot be sent as a bearer token.
    Unusable(&'static str),
    /// The provider has no credentials.
    NoCredentials,
    /// The caller's own bound on token requests is reached.
    OverBudget,
    /// The private key made no signature, though it did when it was taken.
    #[cfg(feature = "private-key-jwt")]
    Unsigned,
    /// Somebody else's code has panicked.
    Panicked(&'static str),
    /// The token expired between `poll_ready` and `call`.
    Expired,
    /// The request goes to an origin that may not see the token.
    ForeignOrigin,
    /// The address of the request is a path, and the layer was not told where that leads.
    NoOrigin,
    /// The `Host` header names another than the address.
    OtherHost,
    /// There is no tokio runtime to ask for a token on.
    NoRuntime,
    /// The runtime that asked went away, twice.
    Vanished,
}

// === impl Kind ===

impl Kind {
    /// Whether asking again may help with nothing changed by anyone.
    pub(crate) fn is_transient(self) -> bool {
        match self {
            Self::Transport
            | Self::Timeout
            | Self::NotReady
            | Self::Unavailable(_)
            | Self::Malformed(_)
            | Self::OverBudget
            | Self::Panicked(_)
            | Self::Expired
            | Self::Vanished => true,
            Self::Rejected(..)
            | Self::Redirected(_)
            | Self::Unusable(_)
            | Self::NoCredentials
            | Self::ForeignOrigin
            | Self::NoOrigin
            | Self::OtherHost
            | Self::NoRuntime => false,
            #[cfg(feature = "private-key-jwt")]
            Self::Unsigned => false,
        }
    }

    /// What happened.
    pub(crate) fn happened(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport => f.write_str("the token endpoint cannot be reached"),
            Self::Timeout => f.write_str("the token endpoint did not answer in time"),
            Self::NotReady => f.write_str(
                "the HTTP client was not ready for the token request in time, nothing was sent",
            ),
            Self::Unavailable(status) if is_refusal(status) => {
                write!(
                    f,
                    "what is at the token endpoint's address does not answer as one: {status}"
                )
            }
            Self::Unavailable(status) => {
                write!(f, "the token endpoint cannot answer now: {status}")
            }
            Self::Rejected(status, code) => write!(
                f,
                "the token endpoint refused the credentials or the grant: {status}, {code}"
            ),
            Self::Redirected(status) => write!(
                f,
                "the token endpoint answered with a redirect, which credentials do not follow: \
                 {status}"
            ),
            Self::Malformed(what) => {
                write!(f, "the token endpoint's reply is no token reply: {what}")
            }
            Self::Unusable(what) => write!(
                f,
                "the token endpoint's token cannot be sent as a bearer token: {what}"
            ),
            Self::NoCredentials => f.write_str("there are no credentials to ask for a token with"),
            Self::OverBudget => f.write_str("no token request is left in the budget"),
            #[cfg(feature = "private-key-jwt")]
            Self::Unsigned => {
                f.write_str("the client's private key made no signature, nothing was sent")
            }
            Self::Panicked(who) => write!(f, "{who} panicked while a token was asked for"),
            Self::Expired => f.write_str(
                "the token expired between readiness and call, the request was not sent",
            ),
            Self::ForeignOrigin => {
                f.write_str("the request goes to an origin that may not see the token")
            }
            Self::NoOrigin => f.write_str(
                "the address of the request is a path alone, and the layer was not told where \
                 that leads",
            ),
            Self::OtherHost => f.write_str("the Host header names another host than the address"),
            Self::NoRuntime => f.write_str("no tokio runtime to ask for a token on"),
            Self::Vanished => f.write_str("the runtime that asked for a token is gone"),
        }
    }

    /// What to do.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Transport => "check the address, its certificate and the network",
            Self::Timeout => "try later, or allow a longer timeout",
            Self::NotReady => "try later, or allow a longer readiness",
            Self::Unavailable(status) if is_refusal(status) => {
                "check address and realm, or try later"
            }
            Self::Unavailable(_) => "try later",
            Self::Rejected(..) => {
                "check the client id, the secret and the client's settings at the server"
            }
            Self::Redirected(_) => "configure the final address",
            Self::Malformed(_) => "try later, and check that the address is a token endpoint's",
            Self::Unusable(_) => "check the client's settings at the server",
            Self::NoCredentials => "set right what the credentials are read from",
            Self::OverBudget => "try later, find out what spends them, or allow more",
            #[cfg(feature = "private-key-jwt")]
            Self::Unsigned => "check the key",
            Self::Panicked(_) => "mend it: its message went to the panic hook",
            Self::Expired => "call again",
            Self::ForeignOrigin => {
                "add the origin to the layer's list, or send the request without the layer"
            }
            Self::NoOrigin => {
                "use an absolute address, or build the layer by `for_origin` or `any_origin`"
            }
            Self::OtherHost => "leave the Host header to the HTTP client",
            Self::NoRuntime => "poll the service inside one",
            Self::Vanished => "call again on a running one",
        }
    }
}

/// Whether a status without an OAuth error is more likely a wrong path than a bad moment. It is
/// transient all the same: a server that is being deployed answers so for a while.
fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error()
        && status != StatusCode::TOO_MANY_REQUESTS
        && status != StatusCode::REQUEST_TIMEOUT
}
