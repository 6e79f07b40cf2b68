//! What an answer means: a table of statuses, refined by texts.

use http::header::{CONTENT_RANGE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, StatusCode, Uri};

use self::decode::Decoded;
pub(crate) use self::status::is_success;
use self::wanted::Wanted;
use crate::clock;
use crate::error::Error;
use crate::error::body::Body;
use crate::error::facts::{Facts, parts, redacted};
use crate::error::text::{escaped, shown};
use crate::hint::{Hint, Used, hint};
use crate::kind::Kind;

#[cfg(feature = "tower-http")]
mod adapter;
mod challenge;
mod charset;
mod decode;
mod drain;
mod failure;
pub(crate) mod future;
mod layer;
mod message;
mod rule;
mod ruled;
mod service;
mod status;
mod text;
pub(crate) mod transport;
mod wanted;

#[cfg(feature = "tower-http")]
pub use self::adapter::KindClassifier;
pub use self::failure::Failure;
pub use self::layer::ClassifyLayer;
pub use self::rule::Rule;
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
    wanted: Wanted,
}

/// What came of an answer's judgement.
#[derive(Clone, Debug)]
struct Judged {
    kind: Kind,
    /// The text that decided, or else the body's.
    message: Option<String>,
    /// The coding in which the body still is.
    coding: Option<Box<str>>,
    hint: Hint,
    body: Body,
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
            wanted: Wanted::NOTHING,
        }
    }

    /// Adds what was read of the body, complete or not, as it came: still encoded, if the
    /// headers say so.
    #[must_use]
    pub const fn body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }

    /// Adds the headers of the request: a 416 means something else where a `Range` was asked for,
    /// a 423 where a lock was held, and a page where only data is accepted.
    #[must_use]
    pub fn asked(self, request: &HeaderMap) -> Self {
        self.wanted(Wanted::of(request))
    }

    /// What the answer means, or `None` for a success: 2xx and 304, and an upgrade (101).
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        self.judge().map(|judged| judged.kind)
    }

    /// What the answer means as an [`Error`], or `None` for a success: with its message, the wait
    /// it asks for, and the id to quote.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        let Judged {
            kind,
            message,
            coding,
            hint,
            body,
        } = self.judge()?;
        let mut facts = Facts::new(kind);
        facts.status = Some(self.status);
        facts.message = message.and_then(|message| shown(&message));
        facts.coding = coding;
        facts.request_id = request_id(self.headers);
        facts.body = body;
        facts.limits = limits(self.headers);
        facts.window = hint.window;
        if kind == Kind::UnexpectedRedirect {
            facts.location = location(self.headers);
        }
        if kind == Kind::RangeNotSatisfiable {
            facts.whole_length = whole_length(self.headers);
        }
        if let Some(wait) = hint.wait {
            facts.set_retry_after(wait);
        }
        facts.set_kind(kind);
        Some(Error::build(facts, None))
    }

    pub(crate) fn wanted(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    fn judge(&self) -> Option<Judged> {
        let kind = status::kind(self.status, self.headers, self.wanted)?;
        let hint = hint(self.status, self.headers, clock::wall);
        let Decoded { bytes, unread } = decode::decoded(self.headers, self.body);
        let kind = match (kind, hint.used) {
            (Kind::Throttled, Used::Quota) => Kind::QuotaExhausted,
            (Kind::RateExceeded, _) if status::is_lock(&bytes) => Kind::Locked,
            _ => kind,
        };
        let text = charset::text(self.headers, &bytes).filter(|_| unread.is_none());
        let body = text.map_or_else(Vec::new, |text| message::candidates(&text));
        let challenges = challenge::errors(self.headers);
        // The header comes whole where the body may be cut, generic or translated.
        let refined = challenges.iter().chain(&body).find_map(|text| {
            let kind = text::refine(self.status, text)?;
            Some((kind, Some(text.clone())))
        });
        let (kind, message) =
            refined.unwrap_or_else(|| (kind, body.into_iter().chain(challenges).next()));
        Some(Judged {
            kind,
            message,
            coding: unread.and_then(shown),
            hint,
            body: Body::new(&bytes, drain::MOST_BYTES),
        })
    }
}

/// Judges an answer that was read by other means than [`Classify`]: a success is `Ok`.
///
/// [`Answer`] does the same where the request's headers are at hand.
///
/// # Errors
///
/// The [`Error`] that the answer means. It has no method, URI or source.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tower_tds_errors::{Kind, classify};
///
/// let headers = HeaderMap::new();
/// assert!(classify(StatusCode::OK, &headers, "[]").is_ok());
///
/// let error = classify(StatusCode::UNAUTHORIZED, &headers, "invalid token").unwrap_err();
/// assert_eq!(error.kind(), Kind::InvalidToken);
/// assert_eq!(error.message(), Some("invalid token"));
/// ```
pub fn classify(
    status: StatusCode,
    headers: &HeaderMap,
    text: impl AsRef<[u8]>,
) -> Result<(), Error> {
    let answer = Answer::new(status, headers).body(text.as_ref());
    answer.error().map_or(Ok(()), Err)
}

/// Where a redirect leads. What is no URI may be anything, a secret too.
fn location(headers: &HeaderMap) -> Option<Box<str>> {
    let target: Uri = headers.get(LOCATION)?.to_str().ok()?.parse().ok()?;
    Some(redacted(parts(&target)))
}

/// `bytes */1234` (RFC 9110, section 15.5.17).
fn whole_length(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (_, length) = range.rsplit_once('/')?;
    length.trim().parse().ok()
}

fn limits(headers: &HeaderMap) -> Option<Box<HeaderMap>> {
    let told = headers.iter().filter(|(name, _)| {
        let limits = |start| name.as_str().starts_with(start);
        *name == RETRY_AFTER || limits("ratelimit") || limits("x-ratelimit")
    });
    let told = told.map(|(name, value)| (name.clone(), value.clone()));
    let told: HeaderMap = told.collect();
    (!told.is_empty()).then(|| Box::new(told))
}

fn request_id(headers: &HeaderMap) -> Option<Box<str>> {
    let names = ["x-kong-request-id", "x-request-id", "x-correlation-id"];
    let value = names.iter().find_map(|name| headers.get(*name))?;
    Some(escaped(value.to_str().ok()?))
}

#[cfg(test)]
mod tests;
