//! The judge: whether an answer refuses the token that was sent.

use std::fmt;

use http::{HeaderMap, Response, StatusCode, header};

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
    note = "or see whether the layers stand in the order that `{Self}` is made for"
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

/// Just enough of `WWW-Authenticate` (RFC 9110, section 11.6.1) to find each `error` parameter.
struct Parameters<'a> {
    rest: &'a [u8],
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

    /// Whether the next call sends a newer token than the refused one.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.refresh == Refresh::Replaced
    }

    /// Whether one resend can help: a newer token exists or was requested for this call.
    ///
    /// A request may have failed, and the refusal may have been a single error of the service.
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

// === impl Parameters ===

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (before, after) = split(self.rest, |b| b == b'=')?;
        // The name is the last word before the sign; a scheme or a comma may stand before it.
        let name = before
            .trim_ascii_end()
            .rsplit(|b| b" \t,".contains(b))
            .next()
            .unwrap_or_default();
        let after = after.trim_ascii_start();
        let value = match after.strip_prefix(b"\"") {
            Some(quoted) => {
                let mut escaped = false;
                let (value, rest) = split(quoted, |b| {
                    let ends = b == b'"' && !escaped;
                    escaped = b == b'\\' && !escaped;
                    ends
                })?;
                self.rest = rest;
                value
            }
            None => {
                let (value, rest) = split(after, |b| b" \t,".contains(&b)).unwrap_or((after, b""));
                self.rest = rest;
                value
            }
        };
        Some((name, value))
    }
}

fn read(status: StatusCode, headers: &HeaderMap) -> Judgement {
    let find = || {
        let challenges = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let mut errors = challenges.flat_map(|challenge| errors(challenge.as_bytes()));
        errors.find_map(meaning)
    };
    match status.as_u16() {
        401 => find().unwrap_or(Judgement::Refused),
        403 if find() == Some(Judgement::MissingRole) => Judgement::MissingRole,
        408 | 416 | 423 | 429 | 500.. => Judgement::Nothing,
        _ => Judgement::Accepted,
    }
}

/// The texts that no new token can help.
fn meaning(error: &[u8]) -> Option<Judgement> {
    let is = |text: &&[u8]| error.eq_ignore_ascii_case(text);
    let has_role = || {
        error
            .windows(ROLE.len())
            .any(|it| it.eq_ignore_ascii_case(ROLE))
    };
    if NO_HEADER.iter().any(is) {
        Some(Judgement::NoHeader)
    } else if is(&SCOPE) || has_role() {
        Some(Judgement::MissingRole)
    } else {
        None
    }
}

/// The values of all parameters named `error`, as they stand between their quotes.
///
/// Quotes are respected, so that no text inside another parameter passes for an `error`.
fn errors(challenge: &[u8]) -> impl Iterator<Item = &[u8]> {
    Parameters { rest: challenge }
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"error"))
        .map(|(_, value)| value)
}

/// The bytes before and after the first one that `ends` accepts.
fn split(bytes: &[u8], ends: impl FnMut(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let mut ends = ends;
    let at = bytes.iter().position(|b| ends(*b))?;
    let (before, after) = bytes.split_at(at);
    Some((before, after.get(1..).unwrap_or_default()))
}

/// Texts of lua-resty-openidc and other Kong plugins.
const NO_HEADER: [&[u8]; 3] = [
    b"no Authorization header found",
    b"no Bearer authorization header value found",
    b"no Bearer access token value found",
];
/// RFC 6750, section 3.1.
const SCOPE: &[u8] = b"insufficient_scope";
/// Text of the service in its contract; a plugin of Kong writes it.
const ROLE: &[u8] = b"Missing required realm role";
