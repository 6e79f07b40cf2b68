//! What a token error is about, and the words for it.

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
    /// The token expired, or was found dead, between `poll_ready` and `call`.
    Expired,
    /// The request goes to an origin that may not see the token.
    ForeignOrigin,
    /// The request came with an Authorization header of its own.
    AlreadyAuthorized,
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
            | Self::Expired
            | Self::Vanished => true,
            Self::Rejected(..)
            | Self::Redirected(_)
            | Self::Unusable(_)
            | Self::NoCredentials
            | Self::ForeignOrigin
            | Self::AlreadyAuthorized
            | Self::NoRuntime => false,
            #[cfg(feature = "private-key-jwt")]
            Self::Unsigned => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Transport => f.write_str(
                "the token endpoint cannot be reached: check its address, its certificate and the \
                 network",
            ),
            Self::Timeout => f.write_str(
                "the token endpoint did not answer in time: try later, or allow a longer timeout",
            ),
            Self::NotReady => f.write_str(
                "the HTTP client was not ready for the token request in time, nothing was sent: \
                 try later, or allow a longer readiness",
            ),
            Self::Unavailable(status) if is_refusal(status) => write!(
                f,
                "the token endpoint's address does not answer as one (status {}): check address \
                 and realm, or try later",
                status.as_u16()
            ),
            Self::Unavailable(status) => write!(
                f,
                "the token endpoint cannot answer now (status {}): try later",
                status.as_u16()
            ),
            Self::Rejected(status, code) => write!(
                f,
                "the token endpoint refused the credentials or the grant (status {}, {code}): \
                 check the client id, the secret and the client's settings at the server",
                status.as_u16()
            ),
            Self::Redirected(status) => write!(
                f,
                "the token endpoint answered with a redirect (status {}), which credentials do \
                 not follow: configure the final address",
                status.as_u16()
            ),
            Self::Malformed(what) => write!(
                f,
                "the token endpoint's reply is no token reply ({what}): try later, and check \
                 that the address is a token endpoint's"
            ),
            Self::Unusable(what) => write!(
                f,
                "the token endpoint's token cannot be sent as a bearer token ({what}): check the \
                 client's settings at the server"
            ),
            Self::NoCredentials => f.write_str(
                "there are no credentials to ask for a token with: see the source of this error",
            ),
            Self::OverBudget => f.write_str(
                "no token request is left in the budget: try later, find out what spends them, or \
                 allow more",
            ),
            #[cfg(feature = "private-key-jwt")]
            Self::Unsigned => f.write_str(
                "the client's private key made no signature; nothing was sent: check the key",
            ),
            Self::Expired => f.write_str(
                "the token expired between readiness and call; nothing was sent: call again",
            ),
            Self::ForeignOrigin => f.write_str(
                "the request goes to an origin that may not see the token: add the origin to the \
                 layer's list, or send the request without the layer",
            ),
            Self::AlreadyAuthorized => f.write_str(
                "the request has an Authorization header already, and the layer was told to \
                 refuse it: remove it, or send the request without the layer",
            ),
            Self::NoRuntime => {
                f.write_str("no tokio runtime to ask for a token on: poll the service inside one")
            }
            Self::Vanished => f.write_str(
                "the runtime that asked for a token is gone: call again on a running one",
            ),
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
