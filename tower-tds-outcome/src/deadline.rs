//! The deadline of a call.

#![expect(
    clippy::disallowed_types,
    reason = "this crate has no runtime; layers convert it into the instant of theirs"
)]

use std::time::Instant;

use http::Extensions;

/// Deadline of a call, as an extension of its request.
///
/// Set it to bound a call in all layers at once: nothing is sent after it, and each layer that reads it then returns an
/// error with the cause of the wait, or the response that it holds. Retry layers take the earlier of this and their own
/// deadline, and set it on each attempt.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadlineAt(Instant);

// === impl DeadlineAt ===

impl DeadlineAt {
    /// Ends a call at `at`, once this is in the extensions of its request.
    #[inline]
    #[must_use]
    pub const fn new(at: Instant) -> Self {
        Self(at)
    }

    /// Returns the deadline in the extensions of a request.
    #[inline]
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Instant> {
        extensions.get::<Self>().map(|deadline| deadline.0)
    }
}
