//! Extensions of requests and responses: deadline, repeatability, attempt number.

use std::time::Duration;

use http::{Extensions, Request};
use tokio::time::Instant;

use crate::kind::Kind;

/// When a call is given up at the latest.
///
/// It counts from `call` until the head of the answer, and covers all that is waited for in between:
/// a token, a permit, a place in a queue, each attempt, each sleep, the read of an error's body.
/// [`whole`](Self::whole) makes it count until the end of the body. Nothing is sent after it.
///
/// There are two places for it here, and it means the same in both: the layer's default
/// ([`RetryLayer::deadline`](crate::RetryLayer::deadline)) and an extension of the request, which the
/// client of `tower-tds` sets by `Call::deadline`. The earliest counts.
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

/// The deadlines of one call, as times. None is one that the clock cannot reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// When the call was made.
    pub(crate) call: Instant,
    /// For the head of the response.
    pub(crate) head: Option<Instant>,
    /// For the end of its body.
    pub(crate) body: Option<Instant>,
}

/// Until when a body may be read: from a retry to the [`Guard`](crate::Guard) below it.
#[derive(Clone, Copy)]
pub(crate) struct Until(pub(crate) Instant);

/// The deadline of a call: an extension of its requests, for layers below a retry layer.
///
/// A layer that reads it ends with the cause of its wait, or with the status that it has. A
/// [`Retry`](crate::Retry) below another ends by it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineAt(pub Instant);

/// Whether a request may be sent more than once, where its caller knows better than its method: an
/// extension of the request.
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
    /// It is retried like a PUT, whatever its method.
    Allowed,
    /// It is sent once, whatever comes of it.
    Never,
}

/// Which attempt a request is, counted from 1, for layers inside the retry layer; and which one had the
/// response, for those outside of it.
///
/// Only retries and their responses carry it, so that a first attempt allocates nothing; read it by
/// [`of`](Self::of).
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
    /// So long after the `call`. One that the clock cannot reach is none.
    #[must_use]
    pub const fn after(wait: Duration) -> Self {
        Self {
            after: wait,
            is_whole: false,
        }
    }

    /// Counts until the end of the body, where a [`Guard`](crate::Guard) is below. Without one it ends at the head.
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
    /// The deadline of the request with these extensions: for `deadline_from` of layers below.
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

    /// The earliest of each.
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
    /// The attempt of the request or response with these extensions.
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
