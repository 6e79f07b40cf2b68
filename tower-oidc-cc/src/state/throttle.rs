//! The throttle of the token endpoint: the backoff after failures, and the budget of all requests.
//! Arithmetic on `now`, no clock.

use std::{num::NonZeroU32, time::Duration};

use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// So many token requests in any hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    per_hour: NonZeroU32,
    bound: Bound,
}

/// What a request costs that brings a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// As much as any other.
    Hard,
    /// No more than the life of the token makes necessary.
    ByLife,
}

/// Counts the failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

/// What is spent of a budget: a virtual schedule (ITU-T I.371, annex A).
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    /// When all of the requests that were made are paid for.
    paid_at: Option<Instant>,
    /// What the last request has cost, as far as it was not given back.
    cost: Duration,
}

/// Whom the next request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// There is no token: the last request may be spent on this.
    Token,
    /// There is one: one request is left for when there is not.
    Renewal,
}

// === impl Budget ===

impl Budget {
    /// Allows `most` token requests in any hour.
    pub(crate) const fn per_hour(most: NonZeroU32) -> Self {
        Self {
            per_hour: most,
            bound: Bound::Hard,
        }
    }

    /// How many may come at once.
    fn burst(self) -> u32 {
        (self.per_hour.get() / 2).max(1)
    }

    /// What one request takes to be paid for. Any hour sees `burst` and those paid for within it,
    /// and an hour holds one of these less than `per_hour - burst + 1` times.
    fn price(self) -> Duration {
        let rest = self.per_hour.get() - self.burst();
        HOUR / (rest + 1) + Duration::from_nanos(1)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bound: Bound::ByLife,
            ..Self::per_hour(USUAL)
        }
    }
}

// === impl Backoff ===

impl Backoff {
    /// Records a failure and returns the wait that follows it.
    ///
    /// A transient failure backs off with full jitter, which empties a herd fastest (AWS
    /// Architecture Blog, "Exponential Backoff And Jitter", 2015). Any other is remembered for
    /// minutes: somebody has to change something first. `hint`, the server's `Retry-After`, is a
    /// floor. `draw` is in `0.0..1.0`.
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

// === impl Account ===

impl Account {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            paid_at: None,
            cost: Duration::ZERO,
        }
    }

    /// How long it is until a request for this need is admitted; zero if it is now.
    pub(crate) fn wait_at(&self, now: Instant, need: Need) -> Duration {
        let burst = self.budget.burst();
        let kept = match need {
            Need::Renewal if burst > 1 => 2,
            Need::Renewal | Need::Token => 1,
        };
        let credit = self.budget.price().saturating_mul(burst - kept);
        self.unpaid_at(now).saturating_sub(credit)
    }

    pub(crate) fn spend_at(&mut self, now: Instant) {
        self.cost = self.budget.price();
        let unpaid = self.unpaid_at(now).saturating_add(self.budget.price());
        self.paid_at = now.checked_add(unpaid);
    }

    /// Gives back what the last request cost more than a token of this life is worth.
    pub(crate) fn refund(&mut self, life: Duration) {
        let worth = match self.budget.bound {
            Bound::Hard => return,
            Bound::ByLife => life.mul_f64(0.5).max(SOONEST),
        };
        let back = self.cost.saturating_sub(worth);
        self.cost -= back;
        self.paid_at = self.paid_at.and_then(|at| at.checked_sub(back));
    }

    /// How many requests could be made now.
    pub(crate) fn left_at(&self, now: Instant) -> u32 {
        let burst = self.budget.burst();
        let price = self.budget.price().as_nanos().max(1);
        let open = self.unpaid_at(now).as_nanos().div_ceil(price);
        burst.saturating_sub(u32::try_from(open).unwrap_or(u32::MAX))
    }

    fn unpaid_at(&self, now: Instant) -> Duration {
        self.paid_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);
/// What an hour without a token endpoint costs through the backoff, whose mean wait is 15 s. A
/// spent budget then still brings a request each 30 s, the cap of the backoff.
const USUAL: NonZeroU32 = NonZeroU32::new(240).expect("it is not zero");
/// What a token costs at least, which with the burst of an hour makes 3,600 an hour the most. Tokens are renewed after 0.7 of their life at the earliest, so that
/// those of three seconds fit; a Keycloak issues one in 5 ms (measured on 26.5.0).
const SOONEST: Duration = Duration::from_secs(2);
/// One token request costs a Keycloak 5 ms of one core (measured on 26.5.0, 2 cores), so a second
/// between first retries is harmless even from a few hundred processes.
const BASE: Duration = Duration::from_secs(1);
/// The longest outage tail: a healthy endpoint is noticed within this (Azure.Core waits 30 s too).
const CAP: Duration = Duration::from_secs(30);
/// For refusals that only people mend; half of it at least, by jitter.
const REFUSED: Duration = Duration::from_secs(120);
/// A hint beyond this is a mistake more often than a wish; five minutes, so that no header can
/// silence a client for a day.
const HINT_CAP: Duration = Duration::from_secs(300);
