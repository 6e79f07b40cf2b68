//! A token's lifetime: when it is renewed, and when it expires. Arithmetic on `now`, without a clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::Duration;

use crate::clock::Timestamp;

#[cfg(test)]
mod tests;

/// Two moments of a token's life that matter after it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) renew_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

// === impl Lifetime ===

impl Lifetime {
    /// Plans the life of a token that was requested at `sent` and arrived at `now`.
    ///
    /// Life counts from `sent`: the server began to count between `sent` and `now`, so the local expiry
    /// is never later than the server's. Drawn once per token, the jitter (`draw`, in `0.0..1.0`) only
    /// makes the renewal earlier, so that processes that start together drift apart and no renewal
    /// comes close to the expiry. Returns `None` if the life is already over.
    pub(crate) fn plan_at(
        now: Timestamp,
        sent: Timestamp,
        life: Duration,
        before: Option<Duration>,
        draw: f64,
    ) -> Option<Self> {
        let life = life.min(LONGEST);
        let expires_at = sent.checked_add(life)?;
        let left = expires_at.left_at(now);
        if left.is_zero() {
            return None;
        }
        let planned = sent.checked_add(age(life, before, draw))?;
        // A token that arrives late in its life is renewed after half of the rest, or after `MIN_DELAY` if that is
        // shorter. Without this line, a slow endpoint and a short life would cause a loop of requests.
        let soonest = now.checked_add(left.mul_f64(0.5).min(MIN_DELAY))?;
        Some(Self {
            renew_at: if planned.left_at(now) < soonest.left_at(now) {
                soonest
            } else {
                planned
            },
            expires_at,
        })
    }

    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        !self.expires_at.has_come_at(now)
    }
}

/// Returns the age at which a token of this life is renewed, reduced by the jitter `draw`, in `0.0..1.0`.
fn age(life: Duration, before: Option<Duration>, draw: f64) -> Duration {
    match before {
        None => life.mul_f64(RENEW - EARLIER * draw),
        Some(Duration::ZERO) => life,
        Some(before) => {
            let age = life.checked_sub(before).filter(|age| !age.is_zero());
            let age = age.unwrap_or_else(|| life.mul_f64(0.5));
            age.mul_f64(1.0 - EARLIER * draw)
        }
    }
}

/// Latest renewal, as a share of life. A 24 h token then costs 1.25 to 1.43 requests a day, and an
/// endpoint may be down for almost five hours before a call fails.
const RENEW: f64 = 0.8;
/// Jitter, as a share of life. For a 24 h token it is 2.4 h, which spreads the renewals of a thousand
/// processes that start together to one in nine seconds. An age that was set has the
/// same share: 24 h then hold at most six renewals at 4 h (6 * 3.6 h is 21.6 h, 7 * 3.6 h is 25.2 h).
const EARLIER: f64 = 0.1;
/// Shortest time from the arrival of a token to its renewal, unless half of the remaining life is
/// shorter.
const MIN_DELAY: Duration = Duration::from_secs(30);
/// Longest life: thirty days. Longer lives are cut, so that a hostile number cannot overflow a clock.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
