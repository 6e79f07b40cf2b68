//! The retry state of one call, and the decision after a failed attempt. It reads no clock and does
//! no I/O.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::num::NonZeroU32;
use std::time::Duration;

use super::request::Repeat;
use super::settings::{Settings, up_to};
use crate::clock::HEADROOM;
use crate::error::{Error, Facts};
use crate::kind::{Advice, GiveUp, Kind, SILENCE, Sent};
use fastrand::Rng;
use http::Method;

/// The attempts of one call so far.
#[derive(Debug)]
pub(super) struct RetryState {
    repeat: Repeats,
    /// The number of attempts made, and of those that count.
    pub(super) attempts: u32,
    counted: u32,
    /// Whether a retry that is allowed only once was made.
    used_single_retry: bool,
    /// Whether the one retry for a connection closed while idle is left.
    may_be_idle: bool,
    /// [`Sent`] of the last attempt that was sent, in case the final failure was not.
    sent: Sent,
    rng: Rng,
}

/// Whether a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    /// The method is safe.
    pub(super) is_safe: bool,
    /// The method is idempotent, or the caller allows a repeat.
    pub(super) is_idempotent: bool,
    /// The caller forbids a repeat.
    pub(super) is_forbidden: bool,
}

/// Another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) wait: Duration,
    /// Whether it costs one retry of the budget. It does not if the previous attempt was no work for
    /// the service, if a layer below paces the next one, or if a newer token may help.
    pub(super) is_paid: bool,
    /// Whether it counts against the attempts of the layer.
    pub(super) is_counted: bool,
}

// === impl RetryState ===

impl RetryState {
    /// The state of a call in its first attempt.
    pub(super) fn of(repeat: Repeats) -> Self {
        Self {
            repeat,
            attempts: 1,
            counted: 1,
            used_single_retry: false,
            may_be_idle: repeat.is_safe,
            sent: Sent::Never,
            rng: Rng::new(),
        }
    }

    /// Records in the final error whether an earlier attempt may have been sent.
    pub(super) fn note_sent(&self, last: &mut Facts) {
        if last.sent == Sent::Never {
            last.sent = self.sent;
        }
    }

    /// Takes the last attempt off the count, because it was not made.
    pub(super) fn take_back(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
    }

    /// Records and pays for the next attempt. Returns its wait, or why there is none.
    pub(super) fn begin_retry(
        &mut self,
        error: &Error,
        settings: &Settings,
        is_replayable: bool,
        left: Option<Duration>,
    ) -> Result<Duration, GiveUp> {
        let again = self.after(error, settings, is_replayable, left)?;
        if again.is_paid && !settings.pay() {
            return Err(GiveUp::Budget);
        }
        self.note(error, again);
        Ok(again.wait)
    }

    /// Decides what follows a failure, without recording an attempt.
    pub(super) fn after(
        &mut self,
        error: &Error,
        settings: &Settings,
        is_replayable: bool,
        left: Option<Duration>,
    ) -> Result<Again, GiveUp> {
        if let Some(settled) = error.gave_up() {
            return Err(settled);
        }
        let advice = error.advice();
        if advice == Advice::Never || (advice.is_once() && self.used_single_retry) {
            return Err(GiveUp::Fatal);
        }
        if self.repeat.is_forbidden {
            return Err(GiveUp::Forbidden);
        }
        if !self.repeat.is_idempotent && error.sent() != Sent::Never {
            return Err(GiveUp::NotIdempotent);
        }
        // The server closed an idle connection. Another attempt follows at once, and is not
        // counted.
        let was_idle = error.kind() == Kind::Reset && self.may_be_idle;
        if left.is_some_and(|left| left <= HEADROOM) {
            return Err(GiveUp::Deadline);
        }
        // Checked first: the last attempt has no copy, and the reason is the number of attempts.
        let is_counted = !was_idle || settings.attempts == NonZeroU32::MIN;
        if is_counted && self.counted >= settings.attempts.get() {
            return Err(GiveUp::Attempts);
        }
        if !is_replayable {
            return Err(GiveUp::NotReplayable);
        }
        let floor = error.retry_after().unwrap_or_default().max(least(error));
        let longest = settings.longest_wait.max(least(error));
        if floor > longest {
            return Err(GiveUp::HintTooLong);
        }
        if left.is_some_and(|left| floor >= left) {
            return Err(GiveUp::Deadline);
        }
        let is_at_once = advice == Advice::Once || was_idle;
        let wait = if is_at_once && error.retry_after().is_none() {
            Duration::ZERO
        } else {
            // Half of the remaining time is left for the attempt. Jitter never makes a hint that
            // fits too long.
            let after = left.map(|left| left.saturating_sub(floor));
            let half = after.and_then(|after| after.checked_div(2));
            let room = longest.saturating_sub(floor);
            self.draw(floor, room.min(half.unwrap_or(Duration::MAX)), settings)
        };
        let facts = error.facts();
        let is_free = facts.is_free || facts.sent == Sent::Never;
        Ok(Again {
            wait,
            is_paid: !is_free,
            is_counted,
        })
    }

    /// Records that another attempt follows a failure.
    pub(super) fn note(&mut self, error: &Error, again: Again) {
        self.used_single_retry |= error.advice().is_once();
        self.may_be_idle &= again.is_counted;
        if error.sent() != Sent::Never {
            self.sent = error.sent();
        }
        self.attempts = self.attempts.saturating_add(1);
        self.counted = self.counted.saturating_add(again.is_counted.into());
    }

    /// Draws a wait of at least `floor`, with jitter of at most `room` that spreads waits with the
    /// same floor.
    fn draw(&mut self, floor: Duration, room: Duration, settings: &Settings) -> Duration {
        let nth = self.counted.saturating_sub(1);
        let drawn = settings
            .backoff
            .draw(nth, &mut self.rng)
            .saturating_sub(floor);
        let spread = up_to(floor.checked_div(2).unwrap_or_default(), &mut self.rng);
        let above = drawn.saturating_add(spread);
        let above = if above > room {
            up_to(room, &mut self.rng)
        } else {
            above
        };
        floor.saturating_add(above)
    }
}

// === impl Repeats ===

impl Repeats {
    /// Reads the method, or the caller's [`Repeat`].
    pub(super) fn of(method: &Method, said: Option<Repeat>) -> Self {
        Self {
            is_safe: method.is_safe(),
            is_idempotent: method.is_idempotent() || said == Some(Repeat::Allowed),
            is_forbidden: said == Some(Repeat::Never),
        }
    }
}

/// The minimum wait, which settings cannot shorten. The hint of a 429 replaces it.
fn least(error: &Error) -> Duration {
    match error.advice() {
        Advice::Silence => SILENCE,
        Advice::Quota if error.retry_after().is_none() => SILENCE,
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
