//! Budget of retries, which bounds the extra load on a failing service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

/// Bounds the retries of all calls together, so that a service in trouble is not sent a multiple of
/// its usual load.
///
/// Calls and time pay for retries: one retry for ten calls and three more each second, unless you
/// choose other figures with [`new`](Self::new). What is not spent is kept, up to the worth of 250
/// calls and five seconds together. If the budget is empty, the call fails with
/// [`GiveUp::Budget`](crate::GiveUp::Budget).
///
/// Clones are the same budget, so give one to several layers where they call the same service.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::{RetryBudget, RetryLayer};
///
/// // One retry for five calls, and two more each second.
/// let layer: RetryLayer = RetryLayer::new().budget(RetryBudget::new(0.2, 2));
/// # drop(layer);
/// ```
#[derive(Clone, Debug)]
pub struct RetryBudget(Arc<Balance>);

#[derive(Debug)]
struct Balance {
    /// Calls that the balance does not contain yet. A call only increments this number; the next retry adds it to the
    /// balance.
    calls: AtomicU64,
    /// Parts of a [`RETRY`] that a call and a second are worth.
    per_call: u64,
    per_second: u64,
    /// Retries that are left, and when they were counted.
    balance: Mutex<(u64, Instant)>,
}

// === impl RetryBudget ===

impl RetryBudget {
    /// Creates a budget of `per_call` retries for each call, for example 0.1, and of `per_second`
    /// more. It begins with five seconds' worth of the latter.
    ///
    /// `per_call` is read as zero if it is negative or not a number.
    #[must_use]
    pub fn new(per_call: f32, per_second: u32) -> Self {
        let per_call = f64::from(per_call.max(0.0)) * f64::from(RETRY);
        #[expect(
            clippy::as_conversions,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not negative, and the conversion saturates"
        )]
        let per_call = per_call as u64;
        let per_second = u64::from(per_second).saturating_mul(RETRY.into());
        let balance = (per_second.saturating_mul(SECONDS), clock::now());
        Self(Arc::new(Balance {
            calls: AtomicU64::new(0),
            per_call,
            per_second,
            balance: Mutex::new(balance),
        }))
    }

    /// Counts a call.
    #[inline]
    pub(super) fn deposit(&self) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Pays for a retry. Returns false if there is nothing left.
    #[cold]
    pub(super) fn withdraw(&self) -> bool {
        let Balance {
            calls,
            per_call,
            per_second,
            balance,
        } = &*self.0;
        let mut balance = balance.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, at) = *balance;
        let now = clock::now();
        let elapsed = now.saturating_duration_since(at);
        let by_calls = calls.swap(0, Ordering::Relaxed).saturating_mul(*per_call);
        let most = per_call.saturating_mul(CALLS);
        let most = most.saturating_add(per_second.saturating_mul(SECONDS));
        let earned = by_calls.saturating_add(earned(elapsed, *per_second));
        let now_there = before.saturating_add(earned).min(most);
        let left = now_there.checked_sub(RETRY.into());
        *balance = (left.unwrap_or(now_there), now);
        left.is_some()
    }
}

/// One retry for ten calls is the SRE book's rule ("Handling Overload"). Three more each second suit a
/// client that makes 20 calls a second: if one of four nodes refuses its calls, five a second fail, and the budget pays
/// for one retry of each.
impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(0.1, 3)
    }
}

fn earned(elapsed: Duration, per_second: u64) -> u64 {
    let earned = elapsed.as_nanos().saturating_mul(per_second.into());
    u64::try_from(earned.checked_div(1_000_000_000).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Cost of a retry. The unit is so small that even a short time between two retries earns something.
const RETRY: u32 = 1_000_000;

/// Most unspent retries that are kept: the worth of five seconds, and of the 250 calls that the service takes in them
/// (contract). If more were kept, a job whose attempts a limiter spaces would take long to notice an outage.
const SECONDS: u64 = 5;
const CALLS: u64 = 250;

#[cfg(test)]
mod tests;
