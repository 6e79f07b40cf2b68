//! Decides after a failure whether, when and at whose cost to retry, by arithmetic on the time that
//! is left.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::num::NonZeroU32;
use std::time::Duration;

use http::{Extensions, Method, StatusCode};
use tokio::time::Instant;
use tower_tds_outcome::{DeadlineAt, Sent};

use super::budget::RetryBudget;
use super::request::Repeat;
use crate::clock::HEADROOM;
use crate::error::{Error, Facts};
use crate::kind::{Advice, GiveUp, SILENCE};

/// Policy of a retry layer.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) attempts: NonZeroU32,
    /// `None` stands for two minutes, in calls without a [`DeadlineAt`].
    pub(super) deadline: Option<Duration>,
    /// Whether the service below ends its calls at their deadline.
    pub(super) is_kept_below: bool,
    pub(super) longest_wait: Duration,
    /// Longest wait before the first retry, and before any other.
    pub(super) backoff: (Duration, Duration),
    pub(super) budget: Option<RetryBudget>,
}

/// Attempts of one call so far.
#[derive(Debug)]
pub(super) struct RetryState {
    /// Whether the method is idempotent, or the caller allows a repeat.
    is_idempotent: bool,
    /// Whether the caller forbids a repeat.
    is_forbidden: bool,
    /// Number of attempts that were made, and of those that count against the layer's bound.
    pub(super) attempts: u32,
    pub(super) counted: u32,
    /// Whether a retry that is allowed only once was made.
    used_single_retry: bool,
    /// [`Sent`] of the last attempt that was sent, in case the final failure was not.
    sent: Sent,
    /// Failure before the current wait.
    failure: Option<Error>,
    /// The last failure with a status before `failure`.
    answer: Option<Error>,
}

// === impl Policy ===

impl Policy {
    /// Returns the deadline of a call that begins now, or `None` if it is beyond the range of the
    /// clock.
    #[inline]
    pub(super) fn deadline(&self, extensions: &Extensions, now: Instant) -> Option<Instant> {
        let outer = extensions.get::<DeadlineAt>();
        let outer = outer.map(|it| Instant::from_std(it.at));
        let own = self.deadline.or(outer.is_none().then_some(DEADLINE));
        let own = own.and_then(|after| now.checked_add(after));
        outer.into_iter().chain(own).min()
    }

    /// Returns the longest wait before retry `n`, counted from 0: exponential, and drawn in full, because that spreads
    /// simultaneous retries best.
    pub(super) fn backoff(&self, n: u32) -> Duration {
        let factor = 1u32.checked_shl(n).unwrap_or(u32::MAX);
        let (base, cap) = self.backoff;
        base.saturating_mul(factor).min(cap)
    }

    /// Counts a call for the budget.
    #[inline]
    pub(super) fn deposit(&self) {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: ATTEMPTS,
            deadline: None,
            is_kept_below: false,
            longest_wait: LONGEST_WAIT,
            backoff: BACKOFF,
            budget: Some(RetryBudget::default()),
        }
    }
}

// === impl RetryState ===

impl RetryState {
    /// Returns the state of a call in its first attempt.
    pub(super) fn new(method: &Method, said: Option<Repeat>) -> Self {
        Self {
            is_idempotent: method.is_idempotent() || said == Some(Repeat::Allowed),
            is_forbidden: said == Some(Repeat::Never),
            attempts: 1,
            counted: 1,
            used_single_retry: false,
            sent: Sent::Never,
            failure: None,
            answer: None,
        }
    }

    /// Records in the final error whether an earlier attempt may have been sent.
    pub(super) fn note_sent(&self, last: &mut Facts) {
        if last.cause.sent == Sent::Never {
            last.cause.sent = self.sent;
        }
    }

    /// Keeps a failure that another attempt follows.
    pub(super) fn keep(&mut self, failure: Error) {
        let before = self.failure.replace(failure);
        let known = before.filter(|before| before.status().is_some());
        self.answer = known.or(self.answer.take());
    }

    /// Takes the last attempt off the count, because it was not made. Returns the failure before it.
    pub(super) fn take_back(&mut self) -> Option<Error> {
        self.attempts = self.attempts.saturating_sub(1);
        self.failure.take()
    }

    /// Returns an earlier failure that explains more than the last one, which ended at the deadline
    /// without a status. The earlier failure has a status, unless the last attempt sent nothing.
    pub(super) fn better(&mut self, sent: Sent) -> Option<Error> {
        match self.failure.take() {
            Some(failure) if failure.status().is_some() => Some(failure),
            failure => {
                let unsent = failure.filter(|_| sent == Sent::Never);
                self.answer.take().or(unsent)
            }
        }
    }

    /// Records and pays for the next attempt. Returns its wait, or why there is none.
    pub(super) fn begin_retry(
        &mut self,
        error: &Error,
        policy: &Policy,
        is_replayable: bool,
        left: Option<Duration>,
    ) -> Result<Duration, GiveUp> {
        if let Some(settled) = error.gave_up() {
            return Err(settled);
        }
        let advice = error.advice();
        if advice == Advice::Never || (advice == Advice::Once && self.used_single_retry) {
            return Err(GiveUp::Fatal);
        }
        if self.is_forbidden {
            return Err(GiveUp::Forbidden);
        }
        // A 401 whose token was replaced was not carried out (RFC 9110, section 15.5.2).
        let is_unauthorized = error.status() == Some(StatusCode::UNAUTHORIZED) && error.is_free();
        if !self.is_idempotent && error.sent() != Sent::Never && !is_unauthorized {
            return Err(GiveUp::NotIdempotent);
        }
        if left.is_some_and(|left| left <= HEADROOM) {
            return Err(GiveUp::Deadline);
        }
        // A token that cannot be had yet costs no attempt, because the backoff of its endpoint and the
        // deadline bound the wait.
        let is_awaited = error.is_free() && error.sent() == Sent::Never;
        let is_counted = !is_awaited || policy.attempts == NonZeroU32::MIN;
        // Checked before the copy, which the last attempt does not have: the reason to report is
        // the number of attempts.
        if is_counted && self.counted >= policy.attempts.get() {
            return Err(GiveUp::Attempts);
        }
        if !is_replayable {
            return Err(GiveUp::NotReplayable);
        }
        let floor = error.retry_after().unwrap_or_default().max(least(error));
        let longest = policy.longest_wait.max(least(error));
        if floor > longest {
            return Err(GiveUp::HintTooLong);
        }
        if left.is_some_and(|left| floor >= left) {
            return Err(GiveUp::Deadline);
        }
        let wait = if advice == Advice::Once && error.retry_after().is_none() {
            Duration::ZERO
        } else {
            // Calls that failed with the same hint are spread over half of it. Jitter takes at most
            // half of the time that is left after the floor, so that the attempt has the other
            // half, and never raises a wait above the longest one.
            let nth = self.counted.saturating_sub(1);
            let above = policy.backoff(nth).saturating_sub(floor);
            let room = left.map_or(Duration::MAX, |left| half(left.saturating_sub(floor)));
            let room = room.min(longest.saturating_sub(floor));
            floor.saturating_add(up_to(above.max(half(floor)).min(room)))
        };
        // An attempt is free if the one before it made no work for the service, if a layer below paces it, or if a newer
        // token may help.
        let is_paid = !error.is_free() && error.sent() != Sent::Never;
        let budget = policy.budget.as_ref().filter(|_| is_paid);
        if budget.is_some_and(|budget| !budget.withdraw()) {
            return Err(GiveUp::Budget);
        }
        self.used_single_retry |= advice == Advice::Once;
        if error.sent() != Sent::Never {
            self.sent = error.sent();
        }
        self.attempts = self.attempts.saturating_add(1);
        self.counted = self.counted.saturating_add(is_counted.into());
        Ok(wait)
    }
}

/// Returns the minimum wait, which no setting can shorten. Only the hint of a 429 replaces it.
fn least(error: &Error) -> Duration {
    match error.advice() {
        Advice::Silence => SILENCE,
        Advice::Quota if error.retry_after().is_none() => SILENCE,
        _ => Duration::ZERO,
    }
}

fn half(time: Duration) -> Duration {
    time.checked_div(2).unwrap_or_default()
}

/// Draws a uniformly random time from zero to `bound`.
fn up_to(bound: Duration) -> Duration {
    let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(fastrand::u64(0..=bound))
}

/// The SRE book's rule for one level of retries ("Handling Overload").
const ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// Two waits of at most 30 s between three attempts, and a minute for the attempts.
const DEADLINE: Duration = Duration::from_secs(120);

/// About the duration of a call, and about the longest acceptable one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Longest wait that a caller accepts without setting one. A quota's window of a minute is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
