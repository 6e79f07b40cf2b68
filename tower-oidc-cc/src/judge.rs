//! What an answer says about the token that was sent.

use http::{Response, StatusCode, header};

use self::challenge::errors;

mod challenge;

/// Reads an outcome for what it says about the token.
///
/// The service decides which of its answers mean a dead token, so this is a value that the layer
/// is given ([`TokenLayer::judge`](crate::TokenLayer::judge)). The default, [`Challenge`], reads
/// the head of the response alone. Implement it for services that say it elsewhere, say in a
/// typed error made from the body by a layer below.
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
///             _ => Judgement::Other,
///         }
///     }
/// }
///
/// let mut response = Response::new(());
/// *response.status_mut() = StatusCode::from_u16(498)?;
/// assert_eq!(By498.judge(Ok::<_, &()>(&response)), Judgement::DeadToken);
/// # Ok::<(), http::status::InvalidStatusCode>(())
/// ```
pub trait Judge<Res, E> {
    /// Judges one outcome of the service below. It is called once per call, and must not block.
    fn judge(&self, outcome: Result<&Res, &E>) -> Judgement;
}

/// Says what an outcome means for the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Judgement {
    /// The token that was sent is dead: the next call gets a new one.
    DeadToken,
    /// The outcome says nothing against the token.
    Other,
}

/// Judges by the status and the `WWW-Authenticate` header, the default.
///
/// The token is dead if the status is 401 and a challenge's `error` is, in any case of letters,
/// `invalid_token` (RFC 6750, section 3.1), or one of the texts that lua-resty-openidc sends in
/// its place: `invalid token`, `invalid cached token`, `JWT expired`. Everything else leaves the
/// token alone, a 401 without a challenge too: from its head it cannot be told from a missing
/// role or from a gateway whose own identity check failed.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Challenge;

// === impl Challenge ===

impl<B, E> Judge<Response<B>, E> for Challenge {
    fn judge(&self, outcome: Result<&Response<B>, &E>) -> Judgement {
        match outcome {
            Ok(response) if response.status() == StatusCode::UNAUTHORIZED => {
                let challenges = response.headers().get_all(header::WWW_AUTHENTICATE);
                let dead = challenges
                    .iter()
                    .flat_map(|challenge| errors(challenge.as_bytes()))
                    .any(|error| DEAD.iter().any(|dead| error.eq_ignore_ascii_case(dead)));
                if dead {
                    Judgement::DeadToken
                } else {
                    Judgement::Other
                }
            }
            _ => Judgement::Other,
        }
    }
}

const DEAD: [&[u8]; 4] = [
    b"invalid_token",
    b"invalid token",
    b"invalid cached token",
    b"JWT expired",
];

#[cfg(test)]
mod tests;
