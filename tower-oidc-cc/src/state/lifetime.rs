//! A token's lifetime: when it is renewed, and when it expires. Arithmetic on `now`, no clock.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::time::Duration;

use crate::clock::Timestamp;

#[cfg(test)]
mod tests;

/// The time of the next renewal, for [`TokenSourceBuilder::policy`].
///
/// Under every policy the first use fetches the first token, and an expired one is never sent. The
/// figures are token requests a day for tokens of 24 hours, and include the first one.
///
/// [`TokenSourceBuilder::policy`]: crate::TokenSourceBuilder::policy
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_oidc_cc::RefreshPolicy;
///
/// let every_six_hours = RefreshPolicy::Interval(Duration::from_secs(6 * 60 * 60));
/// assert_ne!(every_six_hours, RefreshPolicy::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefreshPolicy {
    /// At 70 to 80 % of a token's life, at a random moment: 2 requests a day, and no call waits.
    ///
    /// If a token from a [store](crate::TokenStore) is already due for renewal, the process renews
    /// it after half a minute. Programs that end sooner use it until it expires.
    #[default]
    Ahead,
    /// On a fixed schedule, such as every 4 or 6 hours: 7 or 5 requests a day, and no call waits.
    ///
    /// Each renewal comes up to a tenth early, at random, so that processes started together drift
    /// apart. A token with a shorter life is renewed as by [`Ahead`](Self::Ahead). An interval of less
    /// than a minute counts as a minute.
    Interval(Duration),
    /// When a call finds the token expired: 2 requests a day at most, and none without calls. That call
    /// waits, and an outage of the endpoint at that time fails it.
    OnExpiry,
}

/// The two moments of a token's life that matter after it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) renew_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

// === impl RefreshPolicy ===

impl RefreshPolicy {
    /// The age at which a token of this life is renewed. `draw`, in `0.0..1.0`, is the jitter, which
    /// makes it younger.
    pub(crate) fn age(self, life: Duration, draw: f64) -> Duration {
        let ahead = life.mul_f64(RENEW - EARLIER * draw);
        match self {
            Self::Ahead => ahead,
            Self::Interval(every) => {
                let every = every.max(SHORTEST).min(life);
                every.mul_f64(1.0 - EARLIER * draw).min(ahead)
            }
            Self::OnExpiry => life,
        }
    }
}

// === impl Lifetime ===

impl Lifetime {
    /// Plans the life of a token that was requested at `sent` and arrived at `now`.
    ///
    /// Life counts from `sent`: the server began to count after that and before `now`, so the
    /// local expiry is never later than the server's. `draw`, in `0.0..1.0`, is the jitter; it is
    /// drawn once per token and only ever moves the renewal earlier, so that processes started
    /// together drift apart and none comes close to expiry. `None` if the life is already over.
    pub(crate) fn plan_at(
        now: Timestamp,
        sent: Timestamp,
        life: Duration,
        policy: RefreshPolicy,
        draw: f64,
    ) -> Option<Self> {
        let life = life.min(LONGEST);
        let expires_at = sent.checked_add(life)?;
        let left = expires_at.left_at(now);
        if left.is_zero() {
            return None;
        }
        let planned = sent.checked_add(policy.age(life, draw))?;
        // A token that spent most of its life on the way is still used for half of the rest, or
        // for a while: without this line a slow endpoint and a short life make a loop.
        let soonest = now.checked_add(left.mul_f64(0.5).min(A_WHILE))?;
        Some(Self {
            renew_at: if planned.left_at(now) < soonest.left_at(now) {
                soonest
            } else {
                planned
            },
            expires_at,
        })
    }

    pub(crate) fn is_fresh_at(&self, now: Timestamp) -> bool {
        !self.expires_at.has_come_at(now)
    }
}

/// Renewal at 80 % of life at the latest: a 24 h token costs 1.25 to 1.43 requests a day, and an
/// endpoint may be down for almost five hours before a call notices.
const RENEW: f64 = 0.8;
/// The jitter, as a share of life: 2.4 h for a 24 h token, which spreads a thousand processes
/// started at once to one renewal in nine seconds. Of an interval it is the same share: six turns
/// of 4 h then fit 24 h, and a seventh does not (6 * 4 h * 0.9 is 21.6 h, 7 * 3.6 h is 25.2 h).
const EARLIER: f64 = 0.1;
/// An interval in seconds is more likely a mistake about the unit.
const SHORTEST: Duration = Duration::from_secs(60);
/// The least distance between two requests that a policy's schedule makes, where life allows it;
/// a policy's own schedules are longer.
const A_WHILE: Duration = Duration::from_secs(30);
/// Thirty days. Longer lives are cut to this, which also keeps hostile numbers out of both clocks.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
