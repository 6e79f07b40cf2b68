//! What an answer means: a table of statuses, refined by texts.

use http::header::RANGE;
use http::{HeaderMap, StatusCode};

use crate::kind::Kind;

mod challenge;
mod decode;
mod drain;
pub(crate) mod future;
mod layer;
mod message;
mod service;
mod text;
pub(crate) mod transport;

pub use self::layer::ClassifyLayer;
pub use self::service::Classify;

/// What is known of an answer when it is judged.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tower_tds_errors::{Answer, Kind};
///
/// let headers = HeaderMap::new();
/// let answer = Answer::new(StatusCode::UNAUTHORIZED, &headers);
/// assert_eq!(answer.kind(), Some(Kind::Unauthorized));
/// assert_eq!(answer.body(b"invalid token\n").kind(), Some(Kind::InvalidToken));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    body: &'a [u8],
    ranged: Ranged,
}

/// Whether the request asked for a part of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranged {
    Whole,
    Part,
}

// === impl Answer ===

impl<'a> Answer<'a> {
    /// An answer of which the head is known.
    #[must_use]
    pub const fn new(status: StatusCode, headers: &'a HeaderMap) -> Self {
        Self {
            status,
            headers,
            body: b"",
            ranged: Ranged::Whole,
        }
    }

    /// Adds what was read of the body, complete or not, as it came: still encoded, if the
    /// headers say so.
    #[must_use]
    pub const fn body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }

    /// Adds the headers of the request: a 416 means something else where a `Range` was asked for.
    #[must_use]
    pub fn asked(self, request: &HeaderMap) -> Self {
        self.ranged(Ranged::of(request))
    }

    /// What the answer means, or `None` for a success: 2xx and 304.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        self.judge().map(|(kind, _)| kind)
    }

    pub(crate) fn ranged(mut self, ranged: Ranged) -> Self {
        self.ranged = ranged;
        self
    }

    /// The kind, with the text to show for it: the one that decided, or else the body's.
    pub(crate) fn judge(&self) -> Option<(Kind, Option<String>)> {
        let kind = by_status(self.status, self.ranged)?;
        let body = message::candidates(&decode::decoded(self.headers, self.body));
        let challenges = challenge::errors(self.headers);
        // The header comes whole where the body may be cut, generic or translated.
        for text in challenges.iter().chain(&body) {
            if let Some(refined) = text::refine(self.status, text) {
                return Some((refined, Some(text.clone())));
            }
        }
        let shown = body.into_iter().chain(challenges).next();
        Some((kind, shown))
    }
}

// === impl Ranged ===

impl Ranged {
    pub(crate) fn of(request: &HeaderMap) -> Self {
        if request.contains_key(RANGE) {
            Self::Part
        } else {
            Self::Whole
        }
    }
}

/// Whether the caller gets the answer as it is.
pub(crate) fn is_success(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_MODIFIED
}

/// The class that holds whatever the body says.
///
/// A status that nobody registered is read as the first of its class (RFC 9110, section 15).
fn by_status(status: StatusCode, ranged: Ranged) -> Option<Kind> {
    if is_success(status) {
        return None;
    }
    let kind = match (status.as_u16(), ranged) {
        (300..=399, _) => Kind::UnexpectedRedirect,
        (401, _) => Kind::Unauthorized,
        (403, _) => Kind::Forbidden,
        (404 | 410, _) => Kind::NotFound,
        // These two are the service's own, and mean nothing like it in RFC 9110 and RFC 4918.
        (416, Ranged::Whole) => Kind::ConnectionLimit,
        (416, Ranged::Part) => Kind::RangeNotSatisfiable,
        (423, _) => Kind::RateExceeded,
        (425, _) => Kind::TooEarly,
        (429, _) => Kind::Throttled,
        (408 | 504 | 522 | 524, _) => Kind::ServerTimeout,
        // Not implemented, wrong version, misconfigured, out of room, loop, extension, portal.
        (501 | 505..=508 | 510 | 511, _) => Kind::Rejected,
        (500..=599, _) => Kind::Unavailable,
        _ => Kind::Rejected,
    };
    Some(kind)
}

#[cfg(test)]
mod tests;
