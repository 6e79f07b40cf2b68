//! Shares: the parts of one set of limits that several processes use.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    account::Account,
    clock,
    limiter::Limiter,
    limits::{Limits, Proof, Quota, Share, TIMED_OUT},
};

/// What one process holds, and the whole to divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Smallest share that covers all open sockets and all requests that still count.
    pub held: Share,
    /// How long a share may still be in use after its end: the longest time until an abandoned
    /// request is counted, plus two intervals. After that the request has no effect on any rule.
    pub counts_for: Duration,
    /// All of the limits as one share, as refusals have lowered them.
    pub whole: Share,
    /// Whether the machine has been suspended since the share was set, which is detected on Linux
    /// only.
    pub was_suspended: bool,
}

// === impl Limiter ===

/// Shares, which you rarely need: tower-tds-fleet divides the limits among processes, and sets them.
impl Limiter {
    /// Uses only a share of the limits from now on, and grants nothing after `until`. Calls that
    /// wait beyond that report the reason in `why`, if there is one.
    ///
    /// A larger share applies at once. A smaller one applies to new requests at once, while those
    /// that were sent keep what they [hold](Load::held). As long as more sockets are open than the
    /// share allows, each request closes its socket (`Connection: close`). With an empty share
    /// nothing is granted.
    ///
    /// No socket is written to after `until`. If that has passed already, this call closes all
    /// sockets. Suspending the machine also ends the share.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// use tower_tds_limits::{Limiter, Limits, Share};
    ///
    /// let limiter = Limiter::new(Limits::default()); // of all processes together
    /// let whole = limiter.load().whole;
    /// let half = Share {
    ///     requests: whole.requests / 2,
    ///     places: whole.places / 2,
    ///     connections: whole.connections / 2,
    /// };
    /// limiter.set_share(half, Instant::now() + Duration::from_secs(5), None);
    /// assert_eq!(limiter.load().held, Share::default());
    /// ```
    pub fn set_share(&self, share: Share, until: Instant, why: Option<&'static str>) {
        let (open, over) = self.stack.connections.update_now(|connections, now| {
            let over = connections.set_share(share.connections, until, now);
            (connections.open(now), over)
        });
        drop(over);
        let set = |account: &mut Account, now| account.set_share(share, until, why, now, open);
        self.stack.account.update_now(set);
    }

    /// Reads what this process holds, and the whole to divide.
    #[must_use]
    pub fn load(&self) -> Load {
        let now = clock::now();
        let connections = self.stack.connections.read(|sockets, _| sockets.open(now));
        let counts_for = counts_for(self.limits());
        self.stack.account.read(|account, _| Load {
            held: Share {
                connections,
                ..account.held(now)
            },
            counts_for,
            whole: account.whole(),
            was_suspended: account.was_suspended(clock::suspended()),
        })
    }
}

/// How long a request may count after its process has ended.
fn counts_for(limits: &Limits) -> Duration {
    let longest = limits.quotas().iter().map(Quota::hold).max();
    let counted = match limits.proof {
        Proof::Head => limits.lost_after.max(TIMED_OUT),
        // Behind a gateway that timed out, a request may begin late, and its end is not seen.
        Proof::End => limits.lost_after.saturating_add(TIMED_OUT),
    };
    counted.saturating_add(longest.unwrap_or_default().saturating_mul(2))
}

#[cfg(test)]
mod tests;
