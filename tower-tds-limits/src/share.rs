//! Shares: the parts of one set of limits that several processes use.
//!
//! You rarely need this: tower-tds-fleet divides the limits among processes, and uses it. Set a
//! share yourself if your processes agree on their shares in some other way:
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tower_tds_limits::{Limiter, Limits, share::{Share, Shares}};
//!
//! let limiter = Limiter::new(Limits::default()); // of all processes together
//! let shares = Shares::of(&limiter);
//! let whole = shares.load().whole;
//! let half = Share::default()
//!     .requests(whole.requests / 2)
//!     .places(whole.places / 2)
//!     .connections(whole.connections / 2);
//! shares.set(half, Instant::now() + Duration::from_secs(5));
//! assert_eq!(shares.load().held, Share::default());
//! ```

use std::time::Duration;

use tokio::time::Instant;

pub use crate::limits::Share;
use crate::{
    clock,
    limiter::Limiter,
    limits::{Proof, Quota, TIMED_OUT},
};

/// Share that one process holds, and the whole to divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Smallest share that covers all open sockets and all requests that still count.
    pub held: Share,
    /// All of the limits as one share, as refusals have lowered them.
    pub whole: Share,
    /// Whether the machine has been suspended since the share was set, which is detected on Linux
    /// only.
    pub was_suspended: bool,
}

/// Sets the share of one limiter, and reads what the process holds.
#[derive(Debug, Clone)]
pub struct Shares {
    limiter: Limiter,
}

// === impl Shares ===

impl Shares {
    /// Returns a handle to the share of this limiter.
    #[must_use]
    pub fn of(limiter: &Limiter) -> Self {
        Self {
            limiter: limiter.clone(),
        }
    }

    /// Applies a share of the limits from now on, and grants nothing after `until`.
    ///
    /// A larger share applies at once. A smaller one applies to new requests at once, while those
    /// that were sent keep what they [hold](Load::held). As long as more sockets are open than the
    /// share allows, each request closes its socket (`Connection: close`). With an empty share
    /// nothing is granted.
    ///
    /// No socket is written to after `until`. If that has passed already, this call closes all
    /// sockets. Suspending the machine also ends the share.
    pub fn set(&self, share: Share, until: Instant) {
        let stack = &self.limiter.stack;
        let (open, over) = stack.connections.update_now(|connections, now| {
            let over = connections.set_share(share.connections, until, now);
            (connections.open(now), over)
        });
        if let Some(over) = over {
            over.notify_waiters();
        }
        let account = &stack.account;
        account.update_now(|account, now| account.set_share(share, until, now, open));
    }

    /// Sets the fault that keeps the share from being renewed, such as a store that is unreachable.
    /// Calls that wait for a share report it in their errors.
    pub fn set_fault(&self, fault: Option<&'static str>) {
        let account = &self.limiter.stack.account;
        account.read(|account, _| account.reactions.store_fault = fault);
    }

    /// Reads what this process holds, and the whole to divide.
    #[must_use]
    pub fn load(&self) -> Load {
        let stack = &self.limiter.stack;
        let connections = &stack.connections;
        let connections = connections.read(|connections, _| connections.open(clock::now()));
        stack.account.read(|account, _| Load {
            held: Share {
                connections,
                ..account.held(clock::now())
            },
            whole: account.whole(),
            was_suspended: account.was_suspended(clock::suspended()),
        })
    }

    /// Returns how long a share may still be in use after its end: the longest time until an
    /// abandoned request is counted, plus two intervals. After that the request has no effect on
    /// any rule.
    #[must_use]
    pub fn memory(&self) -> Duration {
        let limits = self.limiter.limits();
        let longest = limits.quotas().iter().map(Quota::hold).max();
        let counted = match limits.proof {
            Proof::Head => limits.lost_after.max(TIMED_OUT),
            // Behind a gateway that timed out, a request may begin late, and its end is not seen.
            Proof::End => limits.lost_after.saturating_add(TIMED_OUT),
        };
        counted.saturating_add(longest.unwrap_or_default().saturating_mul(2))
    }
}

#[cfg(test)]
mod tests;
