//! How often a service may declare tokens dead. Arithmetic on `now`, no clock.

use std::time::Duration;

use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Keeps a growing distance between invalidations.
///
/// A service that refuses every token would otherwise cost one token request per call, and hit
/// hardest when the identity check itself is what is down. The first invalidation is free; the
/// next ones wait a minute, ten minutes, an hour. An hour of calm after a gap forgets it.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    last: Option<(Instant, Duration)>,
}

// === impl Gap ===

impl Gap {
    /// Whether an invalidation is admitted at `now`; it is recorded if so.
    pub(crate) fn admit_at(&mut self, now: Instant) -> bool {
        let next = match self.last {
            None => FIRST,
            Some((at, gap)) => {
                let quiet = now.saturating_duration_since(at);
                if quiet < gap {
                    return false;
                }
                if quiet < gap.saturating_add(CALM) {
                    gap.saturating_mul(GROWTH).min(LONGEST)
                } else {
                    FIRST
                }
            }
        };
        self.last = Some((now, next));
        true
    }
}

/// Ten minutes of constant refusal then cost three token requests: the first token, one at once,
/// one after this minute; the fourth waits for `FIRST` and `FIRST * GROWTH`, eleven minutes.
const FIRST: Duration = Duration::from_secs(60);
const GROWTH: u32 = 10;
const LONGEST: Duration = Duration::from_secs(60 * 60);
const CALM: Duration = Duration::from_secs(60 * 60);
