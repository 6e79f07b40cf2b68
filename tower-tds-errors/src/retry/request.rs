//! Extensions of requests and responses: deadline, repeatability, attempt number.

use std::time::Duration;

use http::{Extensions, Request};
use tokio::time::Instant;

use crate::kind::Kind;

/// The deadline of a call.
///
/// It begins at `call` and covers all waits until the response head: a token, a permit, a place in
/// a queue, each attempt, each backoff, the read of an error's body. [`whole`](Self::whole) extends
/// it to the end of the body. Nothing is sent after it.
///
/// Set it in one of two places: as the layer's default
/// ([`RetryLayer::deadline`](crate::RetryLayer::deadline)) or as an extension of the request, which
/// the client of `tower-tds` sets by `Call::deadline`. The earliest one counts.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_tds_errors::Deadline;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Deadline::after(Duration::from_secs(5)).whole());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    after: Duration,
    is_whole: bool,
}

/// The deadlines of one call, as times. `None` is beyond the range of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// When the call was made.
    pub(crate) call: Instant,
    /// For the head of the response.
    pub(crate) head: Option<Instant>,
    /// For the end of its body.
    pub(crate) body: Option<Instant>,
}

/// The end of the time to read a body, passed from a retry to the [`Guard`](crate::Guard) below it.
#[derive(Clone, Copy)]
pub(crate) struct Until(pub(crate) Instant);

/// The deadline of a call: an extension of its requests, for layers below a retry layer.
///
/// A layer that reads it ends with the cause of its wait, or with a status. A
/// [`Retry`](crate::Retry) below another one obeys it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineAt(pub Instant);

/// Whether a request may be sent more than once, in place of the rule for its method.
///
/// It is an extension of the request.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::Repeat;
///
/// // A POST that only asks, or that its service runs once however often it comes.
/// let mut search = http::Request::post("/v2/search").body("{}").unwrap();
/// search.extensions_mut().insert(Repeat::Allowed);
///
/// // What nobody would wait for.
/// let mut live = http::Request::get("/v2/live").body("").unwrap();
/// live.extensions_mut().insert(Repeat::Never);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repeat {
    /// The request is retried like a PUT.
    Allowed,
    /// The request is sent at most once.
    Never,
}

/// The number of an attempt, in the extensions of its request and its response.
///
/// Layers inside the retry layer read it from the request, and layers outside from the response.
///
/// Only retries and their responses have the extension, so that a first attempt allocates nothing.
/// Read it with [`of`](Self::of).
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

// === impl Deadline ===

impl Deadline {
    /// Sets a deadline at `wait` after the `call`. One beyond the range of the clock is no
    /// deadline.
    #[must_use]
    pub const fn after(wait: Duration) -> Self {
        Self {
            after: wait,
            is_whole: false,
        }
    }

    /// Extends the deadline to the end of the body. It needs a [`Guard`](crate::Guard) below.
    #[must_use]
    pub const fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }
}

impl From<Duration> for Deadline {
    fn from(wait: Duration) -> Self {
        Self::after(wait)
    }
}

// === impl DeadlineAt ===

impl DeadlineAt {
    /// The deadline in a request's extensions, for `deadline_from` of layers below.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Instant> {
        extensions.get::<Self>().map(|deadline| deadline.0)
    }
}

// === impl Due ===

impl Due {
    /// Puts the deadlines on a request, for the layers below.
    #[inline]
    pub(super) fn mark<B>(&self, mut request: Request<B>) -> Request<B> {
        if let Some(head) = self.head {
            request.extensions_mut().insert(DeadlineAt(head));
        }
        if let Some(body) = self.body {
            // A retry above may have an earlier one.
            let outer = request.extensions().get::<Until>();
            let until = outer.map_or(body, |outer| outer.0.min(body));
            request.extensions_mut().insert(Until(until));
        }
        request
    }

    /// Adds a deadline. The earliest one counts.
    pub(super) fn add(&mut self, deadline: Deadline) {
        let at = self.call.checked_add(deadline.after);
        let earliest = |before: Option<Instant>| before.into_iter().chain(at).min();
        self.head = earliest(self.head);
        if deadline.is_whole {
            self.body = earliest(self.body);
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// Reads the attempt from the extensions of a request or a response.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        let first = Self {
            number: 1,
            after: None,
        };
        extensions.get().copied().unwrap_or(first)
    }

    /// The number of the attempt, counted from 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// The kind of the previous attempt's failure.
    #[must_use]
    pub const fn after(self) -> Option<Kind> {
        self.after
    }
}
