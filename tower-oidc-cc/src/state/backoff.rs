//! The backoff after failures of the token endpoint. Arithmetic, no clock.

use std::time::Duration;

#[cfg(test)]
mod tests;

/// Counts the failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
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

/// One token request costs a Keycloak 5 ms of one core (measured on 26.5.0, 2 cores), so a second
/// between first retries is harmless even from a few hundred processes.
const BASE: Duration = Duration::from_secs(1);
/// A healthy endpoint is noticed within this (Azure.Core waits 30 s too).
const CAP: Duration = Duration::from_secs(30);
/// For refusals that need a person; half of it at least, by jitter.
const REFUSED: Duration = Duration::from_secs(120);
/// No header silences a client for longer than five minutes.
const HINT_CAP: Duration = Duration::from_secs(300);
