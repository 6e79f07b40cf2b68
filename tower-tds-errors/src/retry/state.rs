//! The retry state of one call, and the decision after a failed attempt: arithmetic, without clock and
//! without I/O.

use std::num::NonZeroU32;
use std::time::Duration;

use fastrand::Rng;
use http::Method;
use tokio::time::Instant;

use super::backoff::{QUOTA, up_to};
use super::budget::Spending;
use super::request::Repeat;
use super::{RetryLayer, SILENCE, Settings};
use crate::error::{Error, Facts};
use crate::give_up::GiveUp;
use crate::kind::{Advice, Kind, Sent};

/// The attempts of one call so far.
///
/// It is what [`decide`] goes by and writes to: a value for a loop of one's own.
#[derive(Clone, Debug)]
pub struct RetryState {
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
    pub(super) spending: Spending,
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
}

/// What another attempt costs its host's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Costs {
    /// Nobody has had work with the one before.
    Nothing,
    /// A new token cures it, once a call. Paid for if it does not, and not made where nothing is left.
    Later,
    /// The connection was closed while it was idle. Not counted, and its price comes back if it
    /// succeeds: if it does not, it was something else.
    Lent,
    /// Any other: counted, and paid for.
    Paid,
}

/// Says whether another attempt follows a failed one, and after which wait; or why none does.
///
/// This is the decision of [`Retry`](crate::Retry), for a loop of one's own. `left` is what is left
/// to a deadline. The budget of the layer is no part of it.
///
/// # Errors
///
/// The reason for making no further attempt.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::{HeaderMap, Method, StatusCode};
/// use tower_tds_errors::{Asked, GiveUp, RetryLayer, RetryState, classify, decide};
///
/// let layer = RetryLayer::new();
/// let mut state = RetryState::new(&Method::GET);
/// let locked = classify(Asked::default(), StatusCode::LOCKED, &HeaderMap::new(), "").unwrap_err();
///
/// // After a 423 comes a second of silence, and a little more.
/// let wait = decide(&layer, &mut state, &locked, None).unwrap();
/// assert!(wait >= Duration::from_secs(1) && wait < Duration::from_secs(2));
///
/// // Which does not fit into half a second.
/// let left = Some(Duration::from_millis(500));
/// assert_eq!(decide(&layer, &mut state, &locked, left), Err(GiveUp::Deadline));
/// ```
pub fn decide<P>(
    layer: &RetryLayer<P>,
    state: &mut RetryState,
    error: &Error,
    left: Option<Duration>,
) -> Result<Duration, GiveUp> {
    let again = state.after(error, &layer.settings, true, left)?;
    state.note(error, again);
    Ok(again.wait)
}

// === impl RetryState ===

impl RetryState {
    /// The state of a call whose first attempt is under way.
    #[must_use]
    pub fn new(method: &Method) -> Self {
        Self::of(Repeats::of(method, None))
    }

    pub(super) fn of(repeat: Repeats) -> Self {
        Self {
            repeat,
            attempts: 1,
            counted: 1,
            is_cured: false,
            may_be_idle: repeat.is_safe,
            sent: Sent::Never,
            rng: Rng::new(),
            spending: Spending::default(),
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

    /// The wait for the next attempt, noted and paid for, and its end; or why there is none.
    pub(super) fn go_on(
        &mut self,
        error: &Error,
        settings: &Settings,
        authority: Option<&str>,
        left: Option<Duration>,
        now: Instant,
    ) -> Result<(Duration, Instant), GiveUp> {
        if self.costs(error) == Costs::Later {
            self.spending.not_cured(now);
        }
        let again = self.after(error, settings, authority.is_some(), left)?;
        let end = now.checked_add(again.wait).ok_or(GiveUp::HintTooLong)?;
        let authority = authority.unwrap_or_default();
        self.spending
            .pay(settings.budget.as_ref(), authority, again.costs, now)?;
        self.note(error, again);
        Ok((again.wait, end))
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
        let costs = self.costs(error);
        // Attempts come first: where no copy was made because none would be used, that is the reason.
        let is_counted = costs != Costs::Lent || settings.attempts == NonZeroU32::MIN;
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
        let is_at_once = advice == Advice::Once || costs == Costs::Lent;
        if is_at_once && error.retry_after().is_none() {
            let wait = Duration::ZERO;
            return Ok(Again { wait, costs });
        }
        // Half of what is left is for the attempt: a hint that fits is never refused for its jitter.
        let half = left.map(|left| {
            left.saturating_sub(floor)
                .checked_div(2)
                .unwrap_or_default()
        });
        let room = longest
            .saturating_sub(floor)
            .min(half.unwrap_or(Duration::MAX));
        let wait = self.draw(advice, floor, room, settings);
        Ok(Again { wait, costs })
    }

    /// Notes that another attempt follows a failure.
    pub(super) fn note(&mut self, error: &Error, again: Again) {
        self.is_cured |= error.advice().is_once();
        self.may_be_idle &= again.costs != Costs::Lent;
        if error.sent() != Sent::Never {
            self.sent = error.sent();
        }
        self.attempts = self.attempts.saturating_add(1);
        self.counted = self
            .counted
            .saturating_add(u32::from(again.costs != Costs::Lent));
    }

    /// Never before the floor, never all at once when it ends, and never beyond the room behind it.
    fn draw(
        &mut self,
        advice: Advice,
        floor: Duration,
        room: Duration,
        settings: &Settings,
    ) -> Duration {
        let backoff = if advice == Advice::Quota {
            QUOTA
        } else {
            settings.backoff
        };
        let nth = self.counted.saturating_sub(1);
        let drawn = backoff.draw(nth, &mut self.rng).saturating_sub(floor);
        let spread = up_to(floor.checked_div(2).unwrap_or_default(), &mut self.rng);
        let above = drawn.saturating_add(spread);
        let above = if above > room {
            up_to(room, &mut self.rng)
        } else {
            above
        };
        floor.saturating_add(above)
    }

    fn costs(&self, error: &Error) -> Costs {
        if error.kind() == Kind::InvalidToken {
            Costs::Later
        } else if error.sent() == Sent::Never && error.kind() != Kind::Unavailable {
            // Streams are refused by a server that has too many, and that is unavailable.
            Costs::Nothing
        } else if error.kind() == Kind::Reset && self.may_be_idle {
            Costs::Lent
        } else {
            Costs::Paid
        }
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
        Advice::Quota | Advice::Never | Advice::Once | Advice::OnceLater | Advice::Backoff => {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests;
