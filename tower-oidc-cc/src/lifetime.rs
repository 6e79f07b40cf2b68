//! How long a token lives here, and when the next one is fetched. Arithmetic on `now`, no clock.

use std::time::Duration;

use crate::{RefreshPolicy, moment::Moment};

#[cfg(test)]
mod tests;

/// The two moments of a token's life that matter after it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) renew_at: Moment,
    pub(crate) expires_at: Moment,
}

// === impl Lifetime ===

impl Lifetime {
    /// Plans the life of a token that was asked for at `sent` and has arrived at `now`.
    ///
    /// Life counts from `sent`: the server began to count after that and before `now`, so the
    /// local expiry is never later than the server's. `draw`, in `0.0..1.0`, is the jitter; it is
    /// drawn once per token and only ever moves the renewal earlier, so that processes started
    /// together drift apart and none comes close to expiry. `None` if the life is already over.
    pub(crate) fn plan_at(
        now: Moment,
        sent: Moment,
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

    pub(crate) fn is_fresh_at(&self, now: Moment) -> bool {
        !self.expires_at.has_come_at(now)
    }
}

/// The least distance between two requests that a policy's schedule makes, where life allows it;
/// a policy's own schedules are longer.
const A_WHILE: Duration = Duration::from_secs(30);
/// Thirty days. Longer lives are cut to this, which also keeps hostile numbers out of both clocks.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
