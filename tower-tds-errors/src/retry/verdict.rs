//! The decision after a failed attempt: arithmetic, without clock and without I/O.

use std::num::NonZeroU32;
use std::time::Duration;

use fastrand::Rng;
use http::{Extensions, Method};

use super::SILENCE;
use super::attempt::Repeatable;
use super::backoff::{QUOTA, up_to};
use super::policy::Policy;
use crate::kind::Kind;
use crate::kind::table::Advice;
use crate::sent::Sent;
use crate::stop::Stop;

/// What the decision needs of a failed attempt and of the attempts before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) kind: Kind,
    pub(super) advice: Advice,
    pub(super) sent: Sent,
    /// The least wait that the service asks for.
    pub(super) hint: Option<Duration>,
    /// The wait before the attempt that failed.
    pub(super) waited: Duration,
    /// The number of the attempt, counted from 1.
    pub(super) attempt: u32,
    /// Whether an attempt before has had its one cure.
    pub(super) cured: Cured,
    /// Whether the one retry for a connection that was closed while idle is still to be had.
    pub(super) reuse: Reuse,
    /// Whether the method may run twice.
    pub(super) idempotent: Idempotent,
    /// Whether there is a second copy of the request.
    pub(super) spare: Spare,
    /// What is left to the deadline.
    pub(super) left: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cured {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// The method is safe, and no attempt before has had it.
    Open,
    Spent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idempotent {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    Kept,
    None,
}

/// Another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) wait: Duration,
    pub(super) way: Way,
}

/// What another attempt is, and with that what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The token layer has a new one. Free: it happens once a call, and once a token.
    Cured,
    /// The connection was closed while it was idle. Not counted, and its price comes back if it
    /// succeeds: if it does not, it was something else.
    Reused,
    /// The request never left, or its connection was closed before it was looked at, so nobody has
    /// had work with it. Free.
    Unsent,
    /// Any other: counted, and paid for.
    Paid,
}

// === impl Idempotent ===

impl Idempotent {
    /// By the method, or by the caller's consent.
    pub(super) fn of(method: &Method, extensions: &Extensions) -> Self {
        if method.is_idempotent() || extensions.get::<Repeatable>().is_some() {
            Self::Yes
        } else {
            Self::No
        }
    }
}

/// Wait so long and try again, or stop because of this.
pub(super) fn verdict(failed: &Failed, policy: &Policy, rng: &mut Rng) -> Result<Again, Stop> {
    let advice = failed.advice;
    if advice == Advice::Never || (advice.is_once() && failed.cured == Cured::Yes) {
        return Err(Stop::Fatal);
    }
    let backoff = if advice == Advice::Quota {
        QUOTA
    } else {
        policy.backoff
    };
    if failed.sent != Sent::Never && failed.idempotent == Idempotent::No {
        return Err(Stop::NotIdempotent);
    }
    let way = way(failed);
    // Attempts come first: where no copy was made because none would be used, that is the reason.
    let counted = way != Way::Reused || policy.attempts == NonZeroU32::MIN;
    if counted && failed.attempt >= policy.attempts.get() {
        return Err(Stop::Attempts);
    }
    if failed.spare == Spare::None {
        return Err(Stop::NotReplayable);
    }
    let floor = floor(failed);
    if floor > policy.longest_wait.max(SILENCE) {
        return Err(Stop::HintTooLong);
    }
    let at_once = advice == Advice::Once || way == Way::Reused;
    let at_once = at_once && failed.hint.is_none();
    let wait = if at_once {
        Duration::ZERO
    } else {
        // Never before the floor, never all at once when it ends.
        let drawn = backoff.draw(failed.attempt.saturating_sub(1), failed.waited, rng);
        let spread = up_to(floor.checked_div(2).unwrap_or_default(), rng);
        floor.max(drawn).saturating_add(spread)
    };
    match failed.left {
        Some(left) if wait >= left => Err(Stop::Deadline),
        _ => Ok(Again { wait, way }),
    }
}

fn way(failed: &Failed) -> Way {
    // What a server's close of an idle connection looks like to a request that meets it.
    let closed = matches!(failed.kind, Kind::Incomplete | Kind::Reset);
    if failed.kind == Kind::InvalidToken {
        Way::Cured
    } else if failed.sent == Sent::Never && failed.kind != Kind::StreamRefused {
        // Streams are refused by a server that has too many.
        Way::Unsent
    } else if closed && failed.reuse == Reuse::Open {
        Way::Reused
    } else {
        Way::Paid
    }
}

fn floor(failed: &Failed) -> Duration {
    let hint = failed.hint.unwrap_or_default();
    match failed.advice {
        Advice::Silence => hint.max(SILENCE),
        // A service that says when its quota resets is believed.
        Advice::Quota if failed.hint.is_none() => SILENCE,
        Advice::Never | Advice::Once | Advice::OnceLater | Advice::Backoff | Advice::Quota => hint,
    }
}

#[cfg(test)]
mod tests;
