//! The deadline of a call.

#![expect(
    clippy::disallowed_types,
    reason = "this crate has no runtime; layers convert it into the instant of theirs"
)]

use std::time::Instant;

use http::Extensions;

use crate::hand_over::HandOver;

/// The deadline of a call, as an extension of its request.
///
/// Set it to bound a call in all layers at once. Nothing is sent after it, and a layer that is still waiting then
/// returns an error that names the cause of its wait, or passes on the response that it holds. Retry layers compare it
/// with their own deadline, and set the earlier one on each attempt. It also carries the [`HandOver`] of the request.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_tds_outcome::DeadlineAt;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(DeadlineAt::new(Instant::now() + Duration::from_secs(5)));
/// assert!(DeadlineAt::of(request.extensions()).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct DeadlineAt {
    at: Instant,
    covers_body: bool,
    pub(crate) hand_over: Option<HandOver>,
}

// === impl DeadlineAt ===

impl DeadlineAt {
    /// Creates a deadline at `at`; put it into the extensions of the request.
    #[inline]
    #[must_use]
    pub const fn new(at: Instant) -> Self {
        Self {
            at,
            covers_body: false,
            hand_over: None,
        }
    }

    /// Declares that the deadline ends with the response body, and not with the head, because you bound the
    /// body yourself. A limiter then expects calls to take as long as their bodies.
    #[inline]
    #[must_use]
    pub fn with_body(mut self) -> Self {
        self.covers_body = true;
        self
    }

    /// Returns the deadline in the extensions of a request.
    #[inline]
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Instant> {
        extensions.get::<Self>().map(|deadline| deadline.at)
    }

    /// Whether the deadline in the extensions ends with the response body.
    #[inline]
    #[must_use]
    pub fn covers_body(extensions: &Extensions) -> bool {
        extensions
            .get::<Self>()
            .is_some_and(|deadline| deadline.covers_body)
    }
}
