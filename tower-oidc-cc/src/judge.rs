//! The judge: whether an answer refuses the token that was sent.

use std::fmt;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

#[cfg(test)]
mod tests;

/// Decides whether an outcome of the inner service accepts or refuses the token.
///
/// The default, [`Challenge`], reads the status and the headers of responses. Implement this trait
/// for a service that refuses tokens in another way, or over a layer that turns responses into
/// errors. [`BearerAuthLayer::judge`](crate::BearerAuthLayer::judge) takes it.
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
    /// Returns the meaning of one outcome. It is called once per call and must not block.
    fn judge(&self, outcome: Result<&Res, &E>) -> Judgement;
}

/// The meaning of an outcome for the token that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Judgement {
    /// The service accepted the token, whatever else it answered.
    Accepted,
    /// The outcome is not about the token: a 503 of a gateway, or no answer.
    Nothing,
    /// The service refused the token. The token is doubted, and may be replaced.
    Refused,
    /// The token is good and lacks a role. It stays in use.
    MissingRole,
    /// The service saw no `Authorization` header, though one was sent. No token can help.
    NoHeader,
}

/// Reads the status and the `WWW-Authenticate` header of responses, the default.
///
/// | answer | judgement |
/// |---|---|
/// | 401 whose challenge has the error `insufficient_scope`, or `Missing required realm role` in it | missing role |
/// | 401 whose challenge names a missing header or token | no header |
/// | any other 401, whatever its text | refused |
/// | 403 with one of the errors for a missing role | missing role |
/// | 408, 416, 423, 429, 500 and above: a gateway may answer so before it looks at a token | nothing |
/// | anything else | accepted |
///
/// It reads no error of the inner service: over a layer that turns responses into errors, give the
/// token layer a [`Judge`] of those errors.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Challenge;

/// The meaning of a refused call, and whether a resend can help.
///
/// It is in the extensions of a refused response, and in [`Error::Refused`](crate::Error::Refused).
/// `Display` is advice for a log.
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
    /// A newer token was requested, and none has come.
    Requested,
    /// A newer token is in use.
    Replaced,
}

// === impl Challenge ===

impl<B, E> Judge<Response<B>, E> for Challenge {
    fn judge(&self, outcome: Result<&Response<B>, &E>) -> Judgement {
        match outcome {
            Ok(response) if response.status().is_success() => Judgement::Accepted,
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
        self.refresh != Refresh::None
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
            (Judgement::Refused, Refresh::None) => {
                "the service refused the token, and refused others before it: check that it trusts \
                 this authorization server, and its clock"
            }
            (Judgement::MissingRole, _) => {
                "the token lacks a role that this call needs: ask an administrator for it; tokens \
                 issued from then on carry it"
            }
            (Judgement::NoHeader, _) => {
                "the service saw no Authorization header though one was sent: look for a layer \
                 below the token layer, a redirect, or a proxy that drops it"
            }
            (Judgement::Accepted | Judgement::Nothing, _) => "the token was not refused",
        })
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

/// The texts that no new token can help.
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

/// Texts of lua-resty-openidc and other Kong plugins, in lower case.
const NO_HEADER: [&str; 3] = [
    "error=\"no authorization header found",
    "error=\"no bearer authorization header value found",
    "error=\"no bearer access token value found",
];
/// RFC 6750, section 3.1, and the text of the service in its contract, which a plugin of Kong writes.
const MISSING_ROLE: [&str; 3] = [
    "error=\"insufficient_scope",
    "error=insufficient_scope",
    "missing required realm role",
];
