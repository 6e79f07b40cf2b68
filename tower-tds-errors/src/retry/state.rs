//! The retry state of one call, and the decision after a failed attempt: arithmetic, without clock and
//! without I/O.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::num::NonZeroU32;
use std::time::Duration;

use super::backoff::up_to;
use super::request::Repeat;
use super::{SILENCE, Settings};
use crate::error::{Error, Facts};
use crate::give_up::GiveUp;
use crate::kind::{Advice, Kind, Sent};
use fastrand::Rng;
use http::Method;

/// The attempts of one call so far.
#[derive(Debug)]
pub(super) struct RetryState {
    repeat: Repeats,
    /// How many attempts were made, and how many of them count.
    pub(super) attempts: u32,
    counted: u32,
    /// Whether an attempt before has had its one cure.
    is_cured: bool,
    /// Whether the one retry for a connection that was closed while idle is still to be had.
    may_be_idle: bool,
    /// How the last failure was sent that was, in case the one that the call ends with was not.
    sent: Sent,
    rng: Rng,
}

/// Whether a request may go out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    /// Its method has no effects.
    pub(super) is_safe: bool,
    /// Twice is as good as once, or its caller says so.
    pub(super) is_idempotent: bool,
    /// Its caller wants it sent once.
    pub(super) is_forbidden: bool,
}

/// Another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) wait: Duration,
    pub(super) costs: Costs,
    /// Whether it is one of the attempts that the layer allows.
    pub(super) is_counted: bool,
}

/// What another attempt costs the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Costs {
    /// The service has had no work with the attempt before, or a newer token may help it.
    Nothing,
    /// Any other.
    Paid,
}

// === impl RetryState ===

impl RetryState {
    /// The state of a call whose first attempt is under way.
    pub(super) fn of(repeat: Repeats) -> Self {
        Self {
            repeat,
            attempts: 1,
            counted: 1,
            is_cured: false,
            may_be_idle: repeat.is_safe,
            sent: Sent::Never,
            rng: Rng::new(),
        }
    }

    /// Says of the error that a call ends with what an attempt before it may have done.
    pub(super) fn note_sent(&self, last: &mut Facts) {
        if last.sent == Sent::Never {
            last.sent = self.sent;
        }
    }

    /// Takes back the last one: it is what the call ends with.
    pub(super) fn take_back(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
    }

    /// The wait for the next attempt, noted and paid for; or why there is none.
    pub(super) fn go_on(
        &mut self,
        error: &Error,
        settings: &Settings,
        is_replayable: bool,
        left: Option<Duration>,
    ) -> Result<Duration, GiveUp> {
        let again = self.after(error, settings, is_replayable, left)?;
        if !settings.budget.pay(again.costs) {
            return Err(GiveUp::Budget);
        }
        self.note(error, again);
        Ok(again.wait)
    }

    /// What follows a failure. Nothing is noted yet: who gives up after all has made no attempt.
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
        if advice == Advice::Never || (advice.is_once() && self.is_cured) {
            return Err(GiveUp::Fatal);
        }
        if self.repeat.is_forbidden {
            return Err(GiveUp::Forbidden);
        }
        if !self.repeat.is_idempotent && !error.repeats_any_method() {
            return Err(GiveUp::NotIdempotent);
        }
        // The server closed the connection while it was idle. Another follows at once, and is not counted.
        let was_idle = error.kind() == Kind::Reset && self.may_be_idle;
        // Attempts come first: where no copy was made because none would be used, that is the reason.
        let is_counted = !was_idle || settings.attempts == NonZeroU32::MIN;
        if is_counted && self.counted >= settings.attempts.get() {
            return Err(GiveUp::Attempts);
        }
        if !is_replayable {
            return Err(GiveUp::NotReplayable);
        }
        // The newer token would come after the deadline.
        if error.facts().resends && left.is_some_and(|left| left <= HEADROOM) {
            return Err(GiveUp::Deadline);
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
            // Half of what is left is for the attempt: a hint that fits is never refused for its jitter.
            let after = left.map(|left| left.saturating_sub(floor));
            let half = after.and_then(|after| after.checked_div(2));
            let room = longest.saturating_sub(floor);
            self.draw(floor, room.min(half.unwrap_or(Duration::MAX)), settings)
        };
        Ok(Again {
            wait,
            costs: costs(error),
            is_counted,
        })
    }

    /// Notes that another attempt follows a failure.
    pub(super) fn note(&mut self, error: &Error, again: Again) {
        self.is_cured |= error.advice().is_once();
        self.may_be_idle &= again.is_counted;
        if error.sent() != Sent::Never {
            self.sent = error.sent();
        }
        self.attempts = self.attempts.saturating_add(1);
        self.counted = self.counted.saturating_add(again.is_counted.into());
    }

    /// Never before the floor, never all at once when it ends, and never beyond the room behind it.
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

/// What another attempt costs after this failure.
fn costs(error: &Error) -> Costs {
    if error.facts().resends || error.sent() == Sent::Never {
        Costs::Nothing
    } else {
        Costs::Paid
    }
}

// === impl Repeats ===

impl Repeats {
    /// By the method, or by the caller's word.
    pub(super) fn of(method: &Method, said: Option<Repeat>) -> Self {
        Self {
            is_safe: method.is_safe(),
            is_idempotent: method.is_idempotent() || said == Some(Repeat::Allowed),
            is_forbidden: said == Some(Repeat::Never),
        }
    }
}

/// The second that is kept whatever the settings say. A service that says when its quota resets is believed.
fn least(error: &Error) -> Duration {
    match error.advice() {
        Advice::Silence => SILENCE,
        Advice::Quota if error.retry_after().is_none() => SILENCE,
        _ => Duration::ZERO,
    }
}

/// A token layer returns a refusal this long before the deadline.
const HEADROOM: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
