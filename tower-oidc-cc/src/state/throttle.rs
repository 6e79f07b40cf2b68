//! The throttle of token requests: the backoff after failures, and the rule for refused tokens.
//! Arithmetic on `now`, no clock.
//!
//! The cause of a 401 may be a dead token, a route that refuses all tokens, an error of the
//! service, or a wrong clock. An empty body leaves all of these open, so each 401 counts. The
//! simulation in this module's tests rejected four other rules:
//!
//! - Times between refreshes that double: a revocation beside a bad route fails hundreds of calls.
//! - One refresh an hour for unknown texts: a service without texts fails for an hour.
//! - Memory per path: a path with a number in it is new each time.
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
/// Refreshes draw on a bucket of four that regains one every five minutes, so an hour sees sixteen
/// at most. The emptier the bucket, the more refusals in a row the next refresh needs, and the more
/// time since the refresh before. A failed refresh is repeated at the next refusal, and draws
/// nothing more.
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
    /// Whether a refresh was charged that has not brought a token.
    is_owed: bool,
}

// === impl Backoff ===

impl Backoff {
    /// Records a failure and returns the wait that follows it.
    ///
    /// A transient failure backs off with full jitter, which empties a herd fastest (AWS
    /// Architecture Blog, "Exponential Backoff And Jitter", 2015). Any other needs a change by a
    /// person and waits for minutes. `hint`, the server's `Retry-After`, is a floor. `draw` is in
    /// `0.0..1.0`.
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

    /// Charges a refresh, which is due from then on. An owed refresh is not charged again.
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
        self.in_a_row = 0;
        self.is_owed = false;
        self.since.take().map(|since| since.age_at(now))
    }

    /// Records that another token is in use.
    pub(crate) fn replaced(&mut self) {
        self.in_a_row = 0;
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

/// One token request costs a Keycloak 5 ms of one core (measured on 26.5.0, 2 cores), so a second
/// between first retries is harmless even from a few hundred processes.
const BASE: Duration = Duration::from_secs(1);
/// A healthy endpoint is noticed within this (Azure.Core waits 30 s too).
const CAP: Duration = Duration::from_secs(30);
/// For refusals that need a person; half of it at least, by jitter.
const REFUSED: Duration = Duration::from_secs(120);
/// No header silences a client for longer than five minutes.
const HINT_CAP: Duration = Duration::from_secs(300);
/// For each refresh of a full bucket: the refusals in a row that it takes, and the distance from
/// the refresh before. Chosen by the simulation in this module's tests, which compares rules by
/// failed calls over early deaths, stray refusals and routes that always refuse.
const BUCKET: [(u32, Duration); 4] = [
    (1, Duration::ZERO),
    (2, Duration::from_secs(20)),
    (4, Duration::from_secs(40)),
    (16, Duration::from_secs(80)),
];
/// The bucket regains one refresh in this time: twelve an hour, and four at once, make sixteen.
const REGAIN: Duration = Duration::from_secs(5 * 60);
