//! Spacing of token requests: the backoff after failures, the rule for refused tokens, and the rule for missing roles.
//! Arithmetic on `now`, without a clock.
//!
//! A 401 may come from a revoked token, a route that refuses all tokens, an error of the service, or a wrong clock. With
//! an empty body it can be any of these, so every 401 counts. Memory per path was rejected, because a path that contains
//! a number is new each time, and token lives learned from refusals, because clocks disagree.

use std::{collections::VecDeque, time::Duration};

use crate::{clock::Timestamp, error::TokenError};

#[cfg(test)]
mod tests;

/// Counts the refreshes after refusals: at most 16 in any hour. Four are at once, and the rest is spread over what is left
/// of the hour, so that tokens which die every 225 s or later are all replaced, and no gap is longer than five minutes.
#[derive(Debug, Default)]
pub(crate) struct Refreshes {
    /// When those of the last hour began that brought a token; a failed one is repeated at its backoff.
    past: VecDeque<Timestamp>,
    /// The last one, unless a token was accepted after refusals since: then it replaced no dead token, and delays none.
    last: Option<Timestamp>,
    /// Most refusals in a row of a token that was accepted after them.
    tolerated: u32,
}

/// Times the requests for calls that lack a role.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    /// Number of the last token that lacked a role; zero before the first.
    lacked_by: u64,
    wait: Duration,
}

// === impl Refreshes ===

impl Refreshes {
    /// Whether a token may be requested after this many refusals in a row. While tokens are too young (`is_waiting`), none
    /// is requested at once.
    ///
    /// A token that was accepted after refusals is not dead: some route refuses every token. So once the free refreshes
    /// are used up, such a route can't take the next one, because a longer row of refusals is needed.
    pub(crate) fn allow_at(&mut self, now: Timestamp, refusals: u32, is_waiting: bool) -> bool {
        self.past.retain(|at| at.age_at(now) < HOUR);
        let (Some(first), Some(last)) = (self.past.front(), self.past.back()) else {
            self.tolerated = 0;
            return true;
        };
        if self.past.len() < FREE && !is_waiting {
            return last.age_at(now) >= APART;
        }
        let units = u32::try_from(MOST.saturating_sub(self.past.len())).unwrap_or(0);
        let spread = HOUR.saturating_sub(first.age_at(now)).checked_div(units);
        let is_due = |spread| self.last.is_none_or(|last| last.age_at(now) >= spread);
        refusals > self.tolerated && spread.is_some_and(is_due)
    }

    /// Records that a refresh which began then has brought a token.
    pub(crate) fn note_at(&mut self, began: Timestamp) {
        self.past.push_back(began);
        self.last = Some(began);
    }

    /// Records that a token was accepted after this many refusals.
    pub(crate) fn tolerate(&mut self, refusals: u32) {
        self.last = self.last.filter(|_| refusals == 0);
        self.tolerated = self.tolerated.max(refusals.min(LONGEST_ROW));
    }
}

// === impl Roles ===

impl Roles {
    /// Records that the token of this number lacks a role, and returns the age at which it is replaced: five minutes,
    /// and twice as long for each token in a row that lacks one, up to an hour.
    pub(crate) fn missing(&mut self, generation: u64) -> Duration {
        if generation != self.lacked_by {
            let is_next = self.lacked_by != 0 && generation == self.lacked_by + 1;
            self.wait = if is_next {
                (self.wait * 2).min(HOUR)
            } else {
                ROLE
            };
            self.lacked_by = generation;
        }
        self.wait
    }
}

/// Returns the wait after an error, the first one after so many failures in a row.
///
/// After a transient failure the backoff has full jitter, which spreads many clients fastest (AWS Architecture
/// Blog, "Exponential Backoff And Jitter", 2015). Any other failure needs a change by a person, and its backoff is
/// one to two minutes. The wait is never shorter than the server's `Retry-After`, up to [`HINT_CAP`]. `draw` is in
/// `0.0..1.0`.
pub(crate) fn backoff(failures: u32, error: &TokenError, draw: f64) -> Duration {
    let ceiling = BASE.saturating_mul(2_u32.saturating_pow(failures)).min(CAP);
    let own = match error.is_brief() {
        true => ceiling.mul_f64(draw),
        false => REFUSED.mul_f64(1.0 - 0.5 * draw),
    };
    own.max(error.retry_after().unwrap_or_default().min(HINT_CAP))
}

/// Longest first backoff. One token request costs Keycloak 5 ms of one core (measured on 26.5.0, 2
/// cores), so a second is harmless even with a few hundred processes.
const BASE: Duration = Duration::from_secs(1);
/// Longest backoff after a transient failure (the same as in Azure.Core).
const CAP: Duration = Duration::from_secs(30);
/// Longest backoff after a failure that needs a person. The jitter at most halves it.
const REFUSED: Duration = Duration::from_secs(120);
/// Longest `Retry-After` that is obeyed.
const HINT_CAP: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// Most refreshes after refusals in an hour.
const MOST: usize = 16;
/// Refreshes of an hour that need no distance but this one, so that a token which was issued in the instant of a revocation
/// does not take them all.
const FREE: usize = 4;
const APART: Duration = Duration::from_secs(2);
/// Longest row of refusals that a dead token needs. A route with nine of ten calls makes longer ones, but not often.
const LONGEST_ROW: u32 = 16;
/// Age at which a token that lacks a role is replaced first.
const ROLE: Duration = Duration::from_secs(5 * 60);
