//! What requests and responses carry in their extensions.

use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

use crate::clock;
use crate::kind::Kind;

/// Which attempt a request is, counted from 1, for layers inside the retry layer.
///
/// Only retries carry it, so that a first attempt allocates nothing; read it by [`of`](Self::of).
///
/// # Examples
///
/// ```
/// use tower_tds_errors::Attempt;
///
/// let request = http::Request::new(());
/// let attempt = Attempt::of(request.extensions());
/// assert_eq!((attempt.number(), attempt.after()), (1, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub(super) number: u32,
    pub(super) after: Option<Kind>,
}

/// What a success cost that was not the first attempt: an extension of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retried {
    pub(super) attempts: u32,
    pub(super) elapsed: Duration,
}

/// When a request is given up at the latest: an extension that its caller inserts.
///
/// It shortens what [`RetryLayer::deadline`](crate::RetryLayer::deadline) allows, and covers
/// whatever was waited for since it was made, readiness before the call included.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_tds_errors::Deadline;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Deadline::after(Duration::from_secs(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    at: Option<Instant>,
}

/// That a request may run twice although its method has effects: an extension that its caller
/// inserts.
///
/// It is then retried like a PUT: for a POST that only asks, or that its service runs once however
/// often it comes, say by an `Idempotency-Key`.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::Repeatable;
///
/// let mut search = http::Request::post("/v2/search").body("{}").unwrap();
/// search.extensions_mut().insert(Repeatable::new());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repeatable;

// === impl Attempt ===

impl Attempt {
    /// The attempt that a request with these extensions is.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        let first = Self {
            number: 1,
            after: None,
        };
        extensions.get().copied().unwrap_or(first)
    }

    /// Its number, counted from 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// What went wrong with the attempt before it.
    #[must_use]
    pub const fn after(self) -> Option<Kind> {
        self.after
    }
}

// === impl Retried ===

impl Retried {
    /// How many attempts were made, this one included.
    #[must_use]
    pub const fn attempts(self) -> u32 {
        self.attempts
    }

    /// How long all attempts and waits took.
    #[must_use]
    pub const fn elapsed(self) -> Duration {
        self.elapsed
    }
}

// === impl Deadline ===

impl Deadline {
    /// The deadline that is so far away. One that the clock cannot reach is none.
    #[must_use]
    pub fn after(wait: Duration) -> Self {
        let at = clock::now().checked_add(wait);
        Self { at }
    }

    pub(super) fn of(extensions: &Extensions) -> Option<Instant> {
        extensions.get::<Self>()?.at
    }
}

// === impl Repeatable ===

impl Repeatable {
    /// The consent.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// The consent and nothing else, for a request that is not sent twice but whose error says why.
    pub(super) fn alone(extensions: &Extensions) -> Extensions {
        let mut alone = Extensions::new();
        if let Some(consent) = extensions.get::<Self>() {
            alone.insert(*consent);
        }
        alone
    }
}
