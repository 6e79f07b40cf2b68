//! The settings of a retry layer: attempts, deadline, waits and the budget.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::Extensions;
use tokio::time::Instant;
use tower::retry::budget::{Budget as _, TpsBudget};

use super::trace::Name;
use crate::clock::DeadlineAt;

/// The state that a layer's clones, services and futures share.
#[derive(Debug)]
pub(super) struct Shared<P> {
    pub(super) settings: Settings,
    pub(super) replay: P,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) attempts: NonZeroU32,
    /// `None` is two minutes, for calls without a [`DeadlineAt`].
    pub(super) deadline: Option<Duration>,
    pub(super) longest_wait: Duration,
    pub(super) backoff: Backoff,
    pub(super) budget: Option<Arc<TpsBudget>>,
    pub(super) name: Name,
}

/// Exponential backoff with full jitter. It spreads simultaneous retries best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    base: Duration,
    cap: Duration,
}

// === impl Settings ===

impl Settings {
    /// The deadline of a call that begins now. `None` is beyond the range of the clock.
    #[inline]
    pub(super) fn deadline(&self, extensions: &Extensions, now: Instant) -> Option<Instant> {
        let outer = DeadlineAt::of(extensions);
        let own = self.deadline.or(outer.is_none().then_some(DEADLINE));
        let own = own.and_then(|after| now.checked_add(after));
        match (outer, own) {
            (Some(outer), Some(own)) => Some(outer.min(own)),
            (outer, own) => outer.or(own),
        }
    }

    /// Records a request in the budget. Ten requests pay for one retry by default.
    #[inline]
    pub(super) fn deposit(&self) {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
    }

    /// Pays for a retry. Returns whether the budget allows it.
    pub(super) fn pay(&self) -> bool {
        self.budget.as_ref().is_none_or(|budget| budget.withdraw())
    }
}

/// The budget is one retry for ten requests, as the SRE book recommends ("Handling
/// Overload": 10 %), and three more each second, both counted over ten seconds. Three a second keep a
/// client at 20 calls a second whole while one of four nodes refuses its calls.
impl Default for Settings {
    fn default() -> Self {
        Self {
            attempts: ATTEMPTS,
            deadline: None,
            longest_wait: LONGEST_WAIT,
            backoff: Backoff::default(),
            budget: Some(Arc::new(TpsBudget::new(Duration::from_secs(10), 3, 0.1))),
            name: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Settings");
        f.field("attempts", &self.attempts);
        f.field("deadline", &self.deadline);
        f.field("longest_wait", &self.longest_wait);
        f.field("backoff", &self.backoff).finish_non_exhaustive()
    }
}

// === impl Backoff ===

impl Backoff {
    /// Waits up to `base` before the first retry, and never longer than `cap`.
    pub(super) const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The longest wait before retry `n`, counted from 0.
    pub(super) fn bound(&self, n: u32) -> Duration {
        let factor = 1u32.checked_shl(n).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The wait before retry `n`.
    pub(super) fn draw(&self, n: u32, rng: &mut Rng) -> Duration {
        up_to(self.bound(n), rng)
    }
}

/// 100 ms is about the duration of a call, and 10 s about the longest acceptable one.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(10))
    }
}

/// Draws a uniformly random time from zero to `bound`.
pub(super) fn up_to(bound: Duration, rng: &mut Rng) -> Duration {
    let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(rng.u64(0..=bound))
}

/// The SRE book's rule for one level of retries ("Handling Overload").
const ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// Two waits of at most 30 s between three attempts, and a minute for the attempts.
const DEADLINE: Duration = Duration::from_secs(120);

/// The longest acceptable wait without the caller's consent. A window of a minute is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
