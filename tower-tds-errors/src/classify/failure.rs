//! What a rule's function sees.

use std::fmt;

use http::{HeaderMap, Method, Uri};

use crate::error::Error;
use crate::retry::attempt::Attempt;

/// A failed attempt, as the rules before have left it.
///
/// The headers of the request hold the token, and its URI the query; neither is in its `Debug`.
#[derive(Clone, Copy)]
pub struct Failure<'a> {
    pub(super) error: &'a Error,
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) asked: &'a HeaderMap,
    pub(super) attempt: Attempt,
    pub(super) headers: Option<&'a HeaderMap>,
}

// === impl Failure ===

impl<'a> Failure<'a> {
    /// The error: kind, status, message, the wait asked for, and a transport error as its source.
    #[must_use]
    pub const fn error(&self) -> &'a Error {
        self.error
    }

    /// The method of the request.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The whole URI of the request.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The headers of the request.
    #[must_use]
    pub const fn asked(&self) -> &'a HeaderMap {
        self.asked
    }

    /// Which attempt it was, if a retry layer above counts them.
    #[must_use]
    pub const fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The headers of the answer, if there was one.
    #[must_use]
    pub const fn headers(&self) -> Option<&'a HeaderMap> {
        self.headers
    }
}

impl fmt::Debug for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Failure");
        f.field("error", self.error).field("attempt", &self.attempt);
        f.finish_non_exhaustive()
    }
}
