//! Throttle of token requests: the backoff after failures, and the rule for refused tokens. Arithmetic on `now`,
//! without a clock.
//!
//! A 401 may come from a revoked token, a route that refuses all tokens, an error of the service, or a
//! wrong clock. With an empty body it can be any of these, so every 401 counts. The simulation in this
//! module's tests rejected four other rules:
//!
//! - Doubling the time between refreshes: hundreds of calls fail after a revocation if another route
//!   refuses all tokens.
//! - One refresh an hour for unknown texts: a service without texts fails for an hour.
//! - Memory per path: a path that contains a number is new each time.
//! - Token lives learned from refusals: the clocks of the service and the issuer disagree.

use std::time::Duration;

use crate::clock::Timestamp;

#[cfg(test)]
mod tests;

/// Counts the failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

/// Counts the refusals of the token in use and the refreshes that they caused.
///
/// Each refresh takes one unit from a bucket of four, which regains one unit every five minutes, so
/// there are at most sixteen refreshes an hour. As the bucket empties, the next refresh needs more
/// refusals in a row, and more time since the last one. If it fails, the next refusal repeats it at no
/// further cost.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Refusals of the token in use since it was last accepted.
    in_a_row: u32,
    /// When the service began to refuse tokens; `None` after an acceptance.
    since: Option<Timestamp>,
    /// When the bucket is full again.
    full_at: Option<Timestamp>,
    /// When a refresh was charged last.
    charged_at: Option<Timestamp>,
    /// Whether a charged refresh still has to bring a token.
    is_owed: bool,
}

// === impl Backoff ===

impl Backoff {
    /// Records a failure and returns the wait that follows it.
    ///
    /// After a transient failure the backoff has full jitter, which spreads many clients fastest (AWS Architecture
    /// Blog, "Exponential Backoff And Jitter", 2015). Any other failure needs a change by a person, and its backoff is
    /// one to two minutes. The wait is never shorter than the server's `Retry-After` (`hint`), up to [`HINT_CAP`].
    /// `draw` is in `0.0..1.0`.
    pub(crate) fn fail(&mut self, transient: bool, hint: Option<Duration>, draw: f64) -> Duration {
        let ceiling = BASE
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(CAP);
        self.failures += 1;
        let own = if transient {
            ceiling.mul_f64(draw)
        } else {
            REFUSED.mul_f64(1.0 - 0.5 * draw)
        };
        own.max(hint.unwrap_or_default().min(HINT_CAP))
    }

    pub(crate) fn succeed(&mut self) {
        self.failures = 0;
    }
}

// === impl Refusals ===

impl Refusals {
    /// Records a refusal and returns whether it may cause a refresh.
    pub(crate) fn refused_at(&mut self, now: Timestamp) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.since.get_or_insert(now);
        if self.is_owed {
            return true;
        }
        let taken = BUCKET.len().saturating_sub(self.left_at(now));
        let Some(&(in_a_row, distance)) = BUCKET.get(taken) else {
            return false;
        };
        let is_far = self
            .charged_at
            .is_none_or(|charged_at| charged_at.age_at(now) >= distance);
        self.in_a_row >= in_a_row && is_far
    }

    /// Charges a refresh, unless one was charged and has not brought a token.
    pub(crate) fn charge_at(&mut self, now: Timestamp) {
        if self.is_owed {
            return;
        }
        self.is_owed = true;
        self.charged_at = Some(now);
        let from = self.full_at.filter(|full_at| !full_at.has_come_at(now));
        self.full_at = from.unwrap_or(now).checked_add(REGAIN);
    }

    /// Records that the token in use was accepted, and returns for how long tokens were refused.
    pub(crate) fn accepted_at(&mut self, now: Timestamp) -> Option<Duration> {
        self.replaced();
        self.since.take().map(|since| since.age_at(now))
    }

    /// Records that a new token is in use.
    pub(crate) fn replaced(&mut self) {
        self.in_a_row = 0;
        self.is_owed = false;
    }

    /// Records that a refresh has brought the refused token again.
    pub(crate) fn unchanged(&mut self) {
        self.is_owed = false;
    }

    /// Whether the token in use was refused and not accepted since.
    pub(crate) fn is_doubted(&self) -> bool {
        self.in_a_row > 0
    }

    /// Whether the next acceptance changes anything.
    pub(crate) fn awaits_acceptance(&self) -> bool {
        self.since.is_some()
    }

    /// For how long tokens have been refused, if the token in use is one of them.
    pub(crate) fn doubted_for_at(&self, now: Timestamp) -> Option<Duration> {
        let since = self.since.filter(|_| self.is_doubted());
        since.map(|since| since.age_at(now))
    }

    /// How many refreshes the bucket holds.
    fn left_at(&self, now: Timestamp) -> usize {
        let until_full = self
            .full_at
            .map_or(Duration::ZERO, |full_at| full_at.left_at(now));
        let missing = until_full.as_nanos().div_ceil(REGAIN.as_nanos());
        BUCKET
            .len()
            .saturating_sub(usize::try_from(missing).unwrap_or(usize::MAX))
    }
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
/// For each unit of the bucket: the refusals in a row that a refresh needs, and the time since the last refresh. The
/// simulation in this module's tests compares rules by their failed calls, with revoked tokens, single false refusals
/// and routes that always refuse; these values came out best.
const BUCKET: [(u32, Duration); 4] = [
    (1, Duration::ZERO),
    (2, Duration::from_secs(20)),
    (4, Duration::from_secs(40)),
    (16, Duration::from_secs(80)),
];
/// Time in which the bucket regains one unit. Twelve an hour and four at once make sixteen.
const REGAIN: Duration = Duration::from_secs(5 * 60);
