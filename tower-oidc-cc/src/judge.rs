//! The judge: whether an answer refuses the token that was sent.

use std::error::Error as StdError;

use http::{HeaderMap, Response, StatusCode, header};

use crate::{Rejection, TokenError};

#[cfg(test)]
mod tests;

/// Reads an outcome for what it says about the token.
///
/// The service decides which of its answers mean a dead token, so this is a value that the layer
/// is given ([`BearerAuthLayer::judge`](crate::BearerAuthLayer::judge)). The default, [`Challenge`], reads
/// the head of a response, and what the causes of an error say. Implement it for services that say
/// it elsewhere.
///
/// Say [`Judgement::DeadToken`] only where a new token can help: an authorization server that is
/// down also shows as a 401 behind some gateways, and a refresh on each then storms it.
///
/// # Examples
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_oidc_cc::{Judge, Judgement};
///
/// /// A service that answers 498 to an expired token.
/// #[derive(Clone)]
/// struct By498;
///
/// impl<B, E> Judge<Response<B>, E> for By498 {
///     fn judge(&self, outcome: Result<&Response<B>, &E>) -> Judgement {
///         match outcome {
///             Ok(response) if response.status().as_u16() == 498 => Judgement::DeadToken,
///             Ok(response) if response.status().is_server_error() => Judgement::Nothing,
///             Ok(_) => Judgement::Accepted,
///             Err(_) => Judgement::Nothing,
///         }
///     }
/// }
///
/// let mut response = Response::new(());
/// *response.status_mut() = StatusCode::from_u16(498)?;
/// assert_eq!(By498.judge(Ok::<_, &()>(&response)), Judgement::DeadToken);
/// # Ok::<(), http::status::InvalidStatusCode>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot judge what the service below the token layer answers",
    label = "no `Judge<{Res}, {E}>`",
    note = "these errors may be answers that a layer below has read: `.judge(HeadAlone)` takes none of them for one",
    note = "the errors of `tower-tds` are read by `.judge(ReadError)`, others by a `Judge` of your own",
    note = "or see whether the layers stand in the order that `{Self}` is made for"
)]
pub trait Judge<Res, E> {
    /// Judges one outcome of the service below. It is called once per call, and must not block.
    fn judge(&self, outcome: Result<&Res, &E>) -> Judgement;

    /// Leaves word in the outcome of what was found, for the caller to read; nothing by default.
    ///
    /// It is called after each judgement but [`Judgement::Accepted`] and [`Judgement::Nothing`].
    fn annotate(&self, outcome: Result<&mut Res, &mut E>, finding: Rejection) {
        drop((outcome, finding));
    }

    /// Whether an answer may still be held that waits for the successor of its token: asked at each poll
    /// that finds none. It may, by default, for as long as its caller waits.
    ///
    /// For layers above with a deadline, at which the answer is better than none. It then comes with a
    /// [`Rejection`] that knows no successor.
    fn may_hold(&self) -> bool {
        true
    }
}

/// Says what an outcome means for the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Judgement {
    /// The token was accepted, whatever became of the call.
    ///
    /// It matters where tokens die early: one that was accepted and is then refused is replaced at
    /// once, and one that is refused from the start is not, over and over.
    Accepted,
    /// The outcome says nothing about the token: a 503 of a gateway, or no answer at all.
    Nothing,
    /// The token that was sent is dead. It stays in use until its successor is there, which is asked
    /// for in the background.
    DeadToken,
    /// The call was refused without a reason, as behind a gateway whose own identity check fails.
    /// The token stays; a new one is fetched, once an hour at most, and that call alone waits for it.
    Unexplained,
    /// The token is good, but lacks a role. It stays.
    MissingRole,
    /// The service saw no `Authorization` header, though one was sent. No token can help.
    NoHeader,
}

/// Judges by the status and the `WWW-Authenticate` header, the default.
///
/// A 401 is read by each challenge's `error`, in any case of letters; this is what it may say:
///
/// | judgement | RFC 6750, section 3.1 | lua-resty-openidc and other Kong plugins |
/// |---|---|---|
/// | dead token | `invalid_token` | `invalid token`, `invalid cached token`, `JWT expired` |
/// | missing role | `insufficient_scope` | a text with `Missing required realm role` in it |
/// | no header | | `no Authorization header found`, `no Bearer authorization header value found`, `no Bearer access token value found` |
/// | nothing | | texts of a gateway that could not ask its identity server |
/// | unexplained | any other | any other, or no challenge at all |
///
/// A 403, which is what RFC 6750 gives to a missing role, is read for that alone. A server's error,
/// a 408, 416, 423 and 429 say nothing, since a gateway may answer so before it looks at a token.
/// Whatever else is answered, the token was accepted. What is found goes into the response's
/// extensions, as a [`Rejection`].
///
/// A layer below may have read the answer and made an error of it. Where a cause of an error reads
/// `invalid_token`, `insufficient_scope` (the codes of RFC 6750) or `401 Unauthorized`, and nothing
/// more, that is a dead token, a missing role, and a refusal that is not explained; other errors say
/// nothing. The errors of `tower-tds-errors` have such causes. A boxed error has none that could be
/// looked at: over one this does not compile, and [`HeadAlone`] says that it is meant so.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Challenge;

/// Judges responses as [`Challenge`] does, and takes no error for an answer, of whatever type.
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_oidc_cc::{BearerAuthLayer, HeadAlone, TokenSource};
///
/// async fn call(tokens: TokenSource) -> Option<Response<()>> {
///     let boxed = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(())));
///     let service = BearerAuthLayer::new(tokens, []).judge(HeadAlone).layer(boxed);
///     service.oneshot(Request::new(())).await.ok()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HeadAlone;

/// Just enough of `WWW-Authenticate` (RFC 9110, section 11.6.1) to find each `error` parameter.
struct Parameters<'a> {
    rest: &'a [u8],
}

// === impl Challenge ===

// The compiler names the judge then, and what to do, and not this bound.
#[diagnostic::do_not_recommend]
impl<B, E: StdError + 'static> Judge<Response<B>, E> for Challenge {
    fn judge(&self, outcome: Result<&Response<B>, &E>) -> Judgement {
        match outcome {
            Err(error) => by_causes(error),
            answered @ Ok(_) => HeadAlone.judge(answered),
        }
    }

    fn annotate(&self, outcome: Result<&mut Response<B>, &mut E>, finding: Rejection) {
        HeadAlone.annotate(outcome, finding);
    }
}

// === impl HeadAlone ===

impl<B, E> Judge<Response<B>, E> for HeadAlone {
    fn judge(&self, outcome: Result<&Response<B>, &E>) -> Judgement {
        match outcome {
            Ok(response) if response.status().is_success() => Judgement::Accepted,
            Ok(response) => read(response.status(), response.headers()),
            Err(_) => Judgement::Nothing,
        }
    }

    fn annotate(&self, outcome: Result<&mut Response<B>, &mut E>, finding: Rejection) {
        if let Ok(response) = outcome {
            response.extensions_mut().insert(finding);
        }
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

/// What an error says that stands for an answer.
fn by_causes(error: &(dyn StdError + 'static)) -> Judgement {
    let mut next = Some(error);
    for _ in 0..DEEPEST {
        // What stands below an error of this crate was said of a token request, or by a token layer below.
        let Some(cause) = next.filter(|cause| !cause.is::<TokenError>()) else {
            break;
        };
        match by_code(&cause.to_string()) {
            Some(judgement) => return judgement,
            None => next = cause.source(),
        }
    }
    Judgement::Nothing
}

/// Whether a cause says no more than what the answer means to this crate.
pub(crate) fn is_code(text: &str) -> bool {
    by_code(text).is_some()
}

fn by_code(text: &str) -> Option<Judgement> {
    match text {
        "invalid_token" => Some(Judgement::DeadToken),
        "insufficient_scope" => Some(Judgement::MissingRole),
        "401 Unauthorized" => Some(Judgement::Unexplained),
        _ => None,
    }
}

fn read(status: StatusCode, headers: &HeaderMap) -> Judgement {
    let said = || {
        let challenges = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let errors = challenges.flat_map(|challenge| errors(challenge.as_bytes()));
        errors.map(meaning)
    };
    match status.as_u16() {
        401 => {
            let telling = said().find(|judgement| *judgement != Judgement::Unexplained);
            telling.unwrap_or(Judgement::Unexplained)
        }
        403 => {
            let role = said().find(|judgement| *judgement == Judgement::MissingRole);
            role.unwrap_or(Judgement::Accepted)
        }
        408 | 416 | 423 | 429 | 500.. => Judgement::Nothing,
        _ => Judgement::Accepted,
    }
}

fn meaning(error: &[u8]) -> Judgement {
    let is = |text: &&[u8]| error.eq_ignore_ascii_case(text);
    if DEAD.iter().any(is) {
        Judgement::DeadToken
    } else if NO_HEADER.iter().any(is) {
        Judgement::NoHeader
    } else if is(&SCOPE) || contains(error, ROLE) {
        Judgement::MissingRole
    } else if OUTAGE.iter().any(|text| contains(error, text))
        || error.starts_with(ASKED) && contains(error, FAILED)
    {
        Judgement::Nothing
    } else {
        Judgement::Unexplained
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len())
        .any(|w| w.eq_ignore_ascii_case(part))
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

/// The deepest real chain seen has 6 links; this only bounds a chain that bites its tail.
const DEEPEST: usize = 32;
const DEAD: [&[u8]; 4] = [
    b"invalid_token",
    b"invalid token",
    b"invalid cached token",
    b"JWT expired",
];
const NO_HEADER: [&[u8]; 3] = [
    b"no Authorization header found",
    b"no Bearer authorization header value found",
    b"no Bearer access token value found",
];
const SCOPE: &[u8] = b"insufficient_scope";
const ROLE: &[u8] = b"Missing required realm role";
/// What lua-resty-openidc says where it could not ask (openidc.lua, lines 403, 413 and 530).
const OUTAGE: [&[u8]; 4] = [
    b"introspection endpoint",
    b"response indicates failure",
    b"JSON decoding failed",
    b"discovery",
];
/// And so it begins where it could not have the keys, or any other document.
const ASKED: &[u8] = b"accessing ";
const FAILED: &[u8] = b" failed";
