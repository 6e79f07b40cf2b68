//! The judge of outcomes: whether a response or an error refuses the token that was sent.

use std::{fmt, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

#[cfg(test)]
mod tests;

/// Decides whether an outcome of the inner service accepts or refuses the token.
///
/// The default, [`Challenge`], reads the status and the headers of responses. Implement this trait
/// for a service that refuses tokens in another way. Implement it also if a layer below turns
/// responses into errors. [`BearerAuthLayer::judge`](crate::BearerAuthLayer::judge) takes the
/// implementation.
///
/// # Examples
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_oidc_cc::{Judge, Judgement};
///
/// /// For a service that answers 498 to an expired token.
/// #[derive(Clone)]
/// struct By498;
///
/// impl<B, E> Judge<Response<B>, E> for By498 {
///     fn judge(&self, outcome: Result<&Response<B>, &E>) -> Judgement {
///         match outcome {
///             Ok(response) if response.status().as_u16() == 498 => Judgement::Refused,
///             Ok(response) if response.status().is_server_error() => Judgement::Nothing,
///             Ok(_) => Judgement::Accepted,
///             Err(_) => Judgement::Nothing,
///         }
///     }
/// }
///
/// let mut response = Response::new(());
/// *response.status_mut() = StatusCode::from_u16(498)?;
/// assert_eq!(By498.judge(Ok::<_, &()>(&response)), Judgement::Refused);
/// # Ok::<(), http::status::InvalidStatusCode>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot judge what the service below the token layer answers",
    label = "no `Judge<{Res}, {E}>`",
    note = "the errors of `tower-tds` are read by `.judge(ReadError)`, others by a `Judge` of your own",
    note = "or check the order of the layers: `{Self}` reads what the layer right below returns"
)]
pub trait Judge<Res, E> {
    /// Returns the meaning of one outcome. The layer calls it once for each call. It must not block.
    fn judge(&self, outcome: Result<&Res, &E>) -> Judgement;
}

/// The meaning of an outcome for the token that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Judgement {
    /// The service accepted the token, whatever else it answered.
    Accepted,
    /// The outcome shows nothing about the token, like a 503 of a gateway or a lost connection.
    Nothing,
    /// The service refused the token. The token is doubted, and may be replaced.
    Refused,
    /// The token is valid but lacks a role. It stays in use.
    MissingRole,
    /// The service received no `Authorization` header, although the layer sent one. A new token cannot
    /// help.
    NoHeader,
}

/// Reads the status and the `WWW-Authenticate` header of responses. It is the default [`Judge`].
///
/// | answer | judgement |
/// |---|---|
/// | 401 whose challenge contains the error `insufficient_scope`, or the text `Missing required realm role` | missing role |
/// | 401 whose challenge names a missing header or token | no header |
/// | any other 401, whatever its text | refused |
/// | 403 with a challenge of the first row | missing role |
/// | 408, 416, 423, 429, 500 and above: a gateway can send them before it checks a token | nothing |
/// | gRPC with `grpc-status` in the head: 16, 7 | refused, missing role |
/// | the same: 2, 4, 8, 13, 14 | nothing |
/// | anything else | accepted |
///
/// It does not read errors of the inner service. If a layer below turns responses into errors, give
/// the token layer a [`Judge`] for those errors.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Challenge;

/// The meaning of a refused call, and whether a resend can help.
///
/// It is in the extensions of a refused response, and in [`Error::Refused`](crate::Error::Refused).
/// `Display` is one line for a log, with the next step.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use tower_oidc_cc::{Judgement, Rejection};
///
/// fn lacks_a_role<B>(response: &Response<B>) -> bool {
///     let rejection = response.extensions().get::<Rejection>();
///     rejection.is_some_and(|rejection| rejection.judgement() == Judgement::MissingRole)
/// }
///
/// assert!(!lacks_a_role(&Response::new(())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    judgement: Judgement,
    refresh: Refresh,
}

/// The state of the refused token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// It stays in use.
    None,
    /// It stays in use, is young, and may be accepted after this time.
    After(Duration),
    /// A newer token was requested, and none has come.
    Requested,
    /// A newer token is in use.
    Replaced,
}

// === impl Challenge ===

impl<B, E> Judge<Response<B>, E> for Challenge {
    fn judge(&self, outcome: Result<&Response<B>, &E>) -> Judgement {
        match outcome {
            Ok(response) if response.status().is_success() => grpc(response.headers()),
            Ok(response) => read(response.status(), response.headers()),
            Err(_) => Judgement::Nothing,
        }
    }
}

// === impl Rejection ===

impl Rejection {
    pub(crate) fn new(judgement: Judgement, refresh: Refresh) -> Self {
        Self { judgement, refresh }
    }

    /// The meaning of the outcome for the token.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        self.judgement
    }

    /// Whether one resend can help: a newer token exists or was requested for this call.
    ///
    /// It can help even if that token request failed, because the refusal may have been a single
    /// error of the service.
    #[must_use]
    pub fn is_worth_a_resend(&self) -> bool {
        matches!(self.refresh, Refresh::Requested | Refresh::Replaced)
    }

    /// The time after which a resend with the same token can help.
    ///
    /// There is such a time if the token is less than a minute old and the one before it was refused
    /// too: the clock of the service may be behind that of the authorization server. The token is then
    /// valid as soon as the service's clock has reached the time of its issue. The waits grow with the
    /// token's age, from two seconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.refresh {
            Refresh::After(wait) => Some(wait),
            _ => None,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.judgement, self.refresh) {
            (Judgement::Refused, Refresh::Replaced) => {
                "the service refused the token, and a newer one is in use: call again"
            }
            (Judgement::Refused, Refresh::Requested) => {
                "the service refused the token, and no newer one has come yet: call again once"
            }
            (Judgement::Refused, Refresh::After(_)) => {
                "the service refused two young tokens: call again in a few seconds; if this persists, \
                 check the service's clock, and that it trusts this authorization server"
            }
            (Judgement::Refused, Refresh::None) => {
                "the service refused the token, and no new one is requested now: if this persists, \
                 check the service's clock, and that it trusts this authorization server"
            }
            (Judgement::MissingRole, _) => {
                "the token lacks a role that this call needs: ask an administrator for it; tokens \
                 issued from then on carry it"
            }
            (Judgement::NoHeader, _) => {
                "the service received no Authorization header, although one was sent: look for a layer \
                 below the token layer, a redirect or a proxy that removes it"
            }
            (Judgement::Accepted | Judgement::Nothing, _) => "the token was not refused",
        })
    }
}

/// Reads the head of a gRPC response, which refuses with status 200 (trailers-only). The status of any
/// other response is in its trailers, after the handler ran.
#[inline]
fn grpc(headers: &HeaderMap) -> Judgement {
    // A scan of a few names is faster than a hash.
    if headers.keys().any(|name| *name == GRPC_STATUS) {
        return trailers_only(headers);
    }
    Judgement::Accepted
}

#[cold]
fn trailers_only(headers: &HeaderMap) -> Judgement {
    let status = headers
        .get(&GRPC_STATUS)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let start = kind.and_then(|kind| kind.get(..GRPC.len()));
    match status.trim_ascii() {
        _ if start.is_none_or(|start| !start.eq_ignore_ascii_case(GRPC)) => Judgement::Accepted,
        b"16" => Judgement::Refused,
        b"7" => Judgement::MissingRole,
        b"2" | b"4" | b"8" | b"13" | b"14" => Judgement::Nothing,
        _ => Judgement::Accepted,
    }
}

fn read(status: StatusCode, headers: &HeaderMap) -> Judgement {
    let named = || {
        headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .find_map(meaning)
    };
    match status.as_u16() {
        401 => named().unwrap_or(Judgement::Refused),
        403 if named() == Some(Judgement::MissingRole) => Judgement::MissingRole,
        408 | 416 | 423 | 429 | 500.. => Judgement::Nothing,
        _ => Judgement::Accepted,
    }
}

/// The meaning of a challenge for which a new token cannot help.
fn meaning(challenge: &HeaderValue) -> Option<Judgement> {
    let challenge = String::from_utf8_lossy(challenge.as_bytes()).to_ascii_lowercase();
    let has = |text: &&str| challenge.contains(*text);
    if NO_HEADER.iter().any(has) {
        Some(Judgement::NoHeader)
    } else if MISSING_ROLE.iter().any(has) {
        Some(Judgement::MissingRole)
    } else {
        None
    }
}

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: &[u8] = b"application/grpc";
/// Texts of lua-resty-openidc and other Kong plugins, in lower case.
const NO_HEADER: [&str; 3] = [
    "error=\"no authorization header found",
    "error=\"no bearer authorization header value found",
    "error=\"no bearer access token value found",
];
/// The error of RFC 6750, section 3.1, and the text of a Kong plugin, from the service's contract.
const MISSING_ROLE: [&str; 3] = [
    "error=\"insufficient_scope",
    "error=insufficient_scope",
    "missing required realm role",
];
