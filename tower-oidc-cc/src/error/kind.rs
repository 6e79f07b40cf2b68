//! The kinds of token errors, and the text of each.

use std::fmt;

use http::StatusCode;

/// The kind of a token error. Its text is fixed or a number: no text of a server is printed, because
/// a server may echo the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The HTTP client failed.
    Transport,
    /// The timeout of the token request passed.
    Timeout,
    /// The HTTP client was not ready in time.
    NotReady,
    /// A status without an OAuth error code.
    Unavailable(StatusCode),
    /// The endpoint refused the credentials or the grant, with an OAuth error code.
    Rejected(StatusCode, &'static str),
    /// A redirect, which credentials do not follow.
    Redirected(StatusCode),
    /// The reply is malformed; the next may be whole.
    Malformed(&'static str),
    /// The reply is whole, but its token cannot be sent as a bearer token.
    Unusable(&'static str),
    /// The provider has no credentials.
    NoCredentials,
    /// The private key made no signature, though it did when it was checked.
    #[cfg(feature = "private-key-jwt")]
    Unsigned,
    /// Code of the caller has panicked during the token request.
    Panicked,
    /// The token expired between `poll_ready` and `call`.
    Expired,
    /// The request goes to an origin that may not see the token.
    ForeignOrigin,
    /// The address of the request is a path, and the layer was not built for that.
    NoOrigin,
    /// The `Host` header names another host than the address.
    OtherHost,
    /// There is no tokio runtime.
    NoRuntime,
    /// The runtime of the token request does not run any more.
    Stalled,
}

// === impl Kind ===

impl Kind {
    /// Whether a retry may help without any change.
    pub(crate) fn is_transient(self) -> bool {
        match self {
            Self::Transport
            | Self::Timeout
            | Self::NotReady
            | Self::Unavailable(_)
            | Self::Malformed(_)
            | Self::Panicked
            | Self::Expired
            | Self::Stalled => true,
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

    /// Writes what happened. The subject is the token endpoint or the discovery document.
    pub(crate) fn happened(self, subject: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport => write!(f, "{subject} cannot be reached"),
            Self::Timeout => write!(f, "{subject} did not answer in time"),
            Self::NotReady => f.write_str(
                "the HTTP client was not ready for the token request in time, nothing was sent",
            ),
            Self::Unavailable(status) => write!(f, "{subject} answered {status}"),
            Self::Rejected(status, code) => write!(
                f,
                "{subject} refused the credentials or the grant: {status}, {code}"
            ),
            Self::Redirected(status) => write!(
                f,
                "{subject} answered with a redirect, which credentials do not follow: {status}"
            ),
            Self::Malformed(what) => write!(f, "the reply of {subject} is malformed: {what}"),
            Self::Unusable(what) => write!(
                f,
                "the token of {subject} cannot be sent as a bearer token: {what}"
            ),
            Self::NoCredentials => f.write_str("there are no credentials for a token request"),
            #[cfg(feature = "private-key-jwt")]
            Self::Unsigned => {
                f.write_str("the client's private key made no signature, nothing was sent")
            }
            Self::Panicked => f.write_str("the HTTP client or the token store panicked"),
            Self::Expired => f.write_str(
                "the token expired between readiness and call, the request was not sent",
            ),
            Self::ForeignOrigin => {
                f.write_str("the request goes to an origin that may not see the token")
            }
            Self::NoOrigin => f.write_str(
                "the address of the request is a path alone, and the layer does not know its origin",
            ),
            Self::OtherHost => f.write_str("the Host header names another host than the address"),
            Self::NoRuntime => f.write_str("there is no tokio runtime for a token request"),
            Self::Stalled => f.write_str("the runtime of the token request does not run any more"),
        }
    }

    /// The next step.
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
            Self::Malformed(_) => "try later, and check the address",
            Self::Unusable(_) => "check the client's settings at the server",
            Self::NoCredentials => "correct the source of the credentials",
            #[cfg(feature = "private-key-jwt")]
            Self::Unsigned => "check the key",
            Self::Panicked => "its message went to the panic hook",
            Self::Expired => "call again",
            Self::ForeignOrigin => {
                "add the origin to the layer's list, or send the request without the layer"
            }
            Self::NoOrigin => {
                "use an absolute address, or build the layer by `for_origin` or `any_origin`"
            }
            Self::OtherHost => "leave the Host header to the HTTP client",
            Self::NoRuntime => "poll the service inside one",
            Self::Stalled => "call again on a running one",
        }
    }
}

/// Whether a status without an OAuth error is more likely a wrong path than an outage. It counts as
/// transient, because a server that is being deployed answers like this for a while.
fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error()
        && status != StatusCode::TOO_MANY_REQUESTS
        && status != StatusCode::REQUEST_TIMEOUT
}
