//! The throttle of the token endpoint: the backoff after failures, and an optional cap on requests.
//! Arithmetic on `now`, no clock.

use std::{num::NonZeroU32, time::Duration};

use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// The most token requests in any hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    per_hour: NonZeroU32,
}

/// Counts the failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

/// The requests of a budget that were made: a virtual schedule (ITU-T I.371, annex A).
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    /// When all requests that were made are paid for.
    paid_at: Option<Instant>,
}

/// What the next request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// There is no working token: the last request may be spent on this.
    Token,
    /// There is one: one request is kept for the time without one.
    Renewal,
}

// === impl Budget ===

impl Budget {
    /// Allows `most` token requests in any hour.
    pub(crate) const fn per_hour(most: NonZeroU32) -> Self {
        Self { per_hour: most }
    }

    /// The most requests at once.
    fn burst(self) -> u32 {
        (self.per_hour.get() / 2).max(1)
    }

    /// The time that pays for one request. Any hour sees `burst` and those paid for within it, and
    /// an hour holds one of these less than `per_hour - burst + 1` times.
    fn price(self) -> Duration {
        let rest = self.per_hour.get() - self.burst();
        HOUR / (rest + 1) + Duration::from_nanos(1)
    }
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

// === impl Account ===

impl Account {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            paid_at: None,
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
        let unpaid = self.unpaid_at(now).saturating_add(self.budget.price());
        self.paid_at = now.checked_add(unpaid);
    }

    fn unpaid_at(&self, now: Instant) -> Duration {
        self.paid_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);
/// One token request costs a Keycloak 5 ms of one core (measured on 26.5.0, 2 cores), so a second
/// between first retries is harmless even from a few hundred processes.
const BASE: Duration = Duration::from_secs(1);
/// A healthy endpoint is noticed within this (Azure.Core waits 30 s too).
const CAP: Duration = Duration::from_secs(30);
/// For refusals that need a person; half of it at least, by jitter.
const REFUSED: Duration = Duration::from_secs(120);
/// No header silences a client for longer than five minutes.
const HINT_CAP: Duration = Duration::from_secs(300);
