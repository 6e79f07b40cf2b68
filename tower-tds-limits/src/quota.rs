//! Quotas: a number of requests in an interval.

use std::{num::NonZeroU32, time::Duration};

/// A number of requests that may be counted in any interval of a given length.
///
/// Several quotas can hold at once: give each to [`Limits::also`](crate::Limits::also).
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use tower_tds_limits::Quota;
///
/// let five = NonZeroU32::new(5).expect("5 is not zero");
/// let plan = Quota::per_minute(five);
/// assert_eq!(plan.requests(), five);
/// assert_eq!(plan.per(), Duration::from_secs(60));
/// assert_eq!(Quota::new(five, Duration::ZERO), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    requests: NonZeroU32,
    per: Duration,
}

// === impl Quota ===

impl Quota {
    /// Allows `requests` in any interval of the length `per`.
    ///
    /// Returns `None` if `per` is zero or longer than 366 days.
    #[must_use]
    pub const fn new(requests: NonZeroU32, per: Duration) -> Option<Self> {
        if per.is_zero() || per.as_secs() > LONGEST.as_secs() {
            None
        } else {
            Some(Self { requests, per })
        }
    }

    /// Allows `requests` in any second.
    #[must_use]
    pub const fn per_second(requests: NonZeroU32) -> Self {
        Self {
            requests,
            per: Duration::from_secs(1),
        }
    }

    /// Allows `requests` in any minute.
    #[must_use]
    pub const fn per_minute(requests: NonZeroU32) -> Self {
        Self {
            requests,
            per: Duration::from_secs(60),
        }
    }

    /// The number of requests that an interval allows.
    #[must_use]
    pub const fn requests(&self) -> NonZeroU32 {
        self.requests
    }

    /// The length of the interval.
    #[must_use]
    pub const fn per(&self) -> Duration {
        self.per
    }

    /// How long a permit stays live after its request is proven to be counted: the interval and a
    /// guard for two clocks that disagree.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.per + TICK_GUARD + self.per / RATE_GUARD
    }

    /// The even spacing of requests, guard included.
    #[must_use]
    pub fn spacing(&self) -> Duration {
        let nanos = self.hold().as_nanos();
        let nanos = nanos.div_ceil(u128::from(self.requests.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Covers a server that keeps time in milliseconds, rounded either way, and half of one more.
/// With [`RATE_GUARD`] it makes the 2 ms guard of the proof for an interval of a second.
const TICK_GUARD: Duration = Duration::from_micros(1_500);

/// One part in 2,000: clocks may run 500 ppm apart, the most that NTP corrects by slewing.
const RATE_GUARD: u32 = 2_000;

/// Longer than the interval of any plan, and far from overflowing an instant.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[cfg(test)]
mod tests;
