//! Reactions to refusals: closed requests and sockets, each until a time. All of it is arithmetic on
//! `now`, under the lock of the account.
//!
//! | outcome | closed | until |
//! |---|---|---|
//! | 423 | all requests | a second later |
//! | | requests that are not evenly spaced, then a fifth of the rate | ten minutes after the last, at an accepted response |
//! | 416 | all requests | a second later |
//! | | a sixth of the sockets, and the slots in flight beyond the data sockets | ten minutes after the last |

use std::num::NonZeroU32;

use tower_tds_outcome::Outcome;

use crate::{
    clock::{Tick, nanos},
    limits::Quota,
    rule::{Pace, TICK},
};

/// Whether the service accepted a request that it has answered, within its limits.
#[inline]
pub(crate) const fn is_within(outcome: Outcome) -> bool {
    !matches!(
        outcome,
        Outcome::RateExceeded | Outcome::ConnectionsExceeded | Outcome::QuotaExceeded(_)
    )
}

/// Everything that is closed for a time.
#[derive(Debug, Default)]
pub(crate) struct Reactions {
    /// Until when nothing is sent. The [pause](crate::pause::Pause) of one stack is not included: its
    /// calls keep their ranks, and others pass them.
    pub(super) silent_until: Tick,
    /// What 423s have lowered: first the burst, then the rate.
    rate: Lowered,
    /// What 416s have lowered: the limit of sockets.
    sockets: Lowered,
    /// Until when requests close their sockets.
    closing_until: Tick,
}

/// How often refusals have lowered something.
///
/// The one reaction of all: each further refusal lowers it again, down to a sixth, and ten minutes
/// after the last it is whole. A request that was granted before the last lowering lowers nothing,
/// so a volley that is refused together counts once.
#[derive(Debug, Clone, Copy, Default)]
struct Lowered {
    times: u32,
    /// Time of the last lowering.
    at: Tick,
    /// Time of the last refusal.
    refused: Tick,
}

// === impl Reactions ===

impl Reactions {
    /// Records a 423 to a request that was granted at `granted`. Returns whether the rate is lower now.
    pub(super) fn lower_rate(&mut self, now: Tick, granted: Tick) -> bool {
        self.silent_until = now.plus(SILENCE);
        self.rate.refuse(now, granted)
    }

    /// Records a 416 to a request that was granted at `granted`. Returns whether the limit of sockets is
    /// lower now. If there are `too_many`, a still lower limit would avoid nothing.
    pub(super) fn lower_sockets(&mut self, now: Tick, granted: Tick, too_many: bool) -> bool {
        self.silent_until = now.plus(SILENCE);
        self.closing_until = self.closing_until.max(now.plus(CLOSING));
        self.sockets.end(now);
        self.sockets.refused = now;
        !too_many && self.sockets.refuse(now, granted)
    }

    /// Restores the rate, if the last 423 is long enough ago. Returns whether it was lowered.
    #[inline]
    pub(crate) fn restore_rate(&mut self, now: Tick) -> bool {
        self.rate.times > 0 && self.rate.end(now)
    }

    /// Returns until when the rate is lowered at least, if it is.
    pub(crate) fn slow_until(&self) -> Option<Tick> {
        (self.rate.times > 0).then(|| self.rate.ends_at())
    }

    /// Returns the part of `quota` that is left, and the pace at which it is used.
    pub(crate) fn lowered(&self, quota: Quota) -> (Quota, Option<Pace>) {
        let Some(times) = self.rate.times.checked_sub(1) else {
            return (quota, None);
        };
        let whole = quota.requests();
        let left = NonZeroU32::new(lowered(whole.get(), 5, times)).unwrap_or(whole);
        let left = Quota::new(left, quota.per()).unwrap_or(quota);
        let pace = Pace {
            gap: nanos(left.spacing()) + TICK,
            places: (whole.get() / 10).max(LEAST),
        };
        (left, Some(pace))
    }

    /// Whether a request that is granted at `now` closes its socket.
    #[inline]
    pub(crate) fn closes_socket(&self, now: Tick) -> bool {
        now < self.closing_until
    }

    /// Returns what is left of `most` sockets after 416s, and until when, if they are lowered.
    #[inline]
    pub(crate) fn most_sockets(&self, most: u32) -> Option<(u32, Tick)> {
        let times = Some(self.sockets.times).filter(|times| *times > 0)?;
        Some((lowered(most, 6, times), self.sockets.ends_at()))
    }
}

// === impl Lowered ===

impl Lowered {
    /// Records the refusal of a request that was granted at `granted`. Returns whether it lowers.
    fn refuse(&mut self, now: Tick, granted: Tick) -> bool {
        self.refused = now;
        let is_old = self.times > 0 && granted <= self.at;
        if !is_old {
            self.times = self.times.saturating_add(1);
            self.at = now;
        }
        !is_old
    }

    /// When the last refusal is forgotten.
    #[inline]
    fn ends_at(&self) -> Tick {
        self.refused.plus(LOWERED)
    }

    /// Ends it, if it is due.
    #[inline]
    fn end(&mut self, now: Tick) -> bool {
        let ends = self.ends_at() <= now;
        if ends {
            self.times = 0;
        }
        ends
    }
}

/// Returns what is left of `whole` if it is lowered by one part in `parts` this many times: a sixth
/// at least.
fn lowered(whole: u32, parts: u32, times: u32) -> u32 {
    let least = (whole / 6).max(1);
    let mut left = whole;
    // Twenty times lower anything to the least.
    for _ in 0..times.min(20) {
        left -= left.div_ceil(parts);
    }
    left.max(least)
}

/// Returns how many of `most` sockets are for data. One is for token requests.
pub(crate) fn data_sockets(most: u32) -> u32 {
    most.saturating_sub(1).max(1)
}

/// Some services count refused requests as well, and would never stop refusing a client that goes
/// on (simulated: 50-74 % of its requests; measured with HAProxy's `http_req_rate(1s)`: 394 to
/// 550 of 600). After a second without requests all such windows are empty.
const SILENCE: u64 = 1_002_000_000;

/// Long enough for each socket of a busy pool to carry a request after the silence of a second.
const CLOSING: u64 = 3_000_000_000;

/// Ten minutes, so that a limit that stays lower costs a few refusals in 30,000 requests at the full
/// rate. Longer than a packet filter counts a half-closed connection (Linux conntrack: 120 s in
/// `FIN_WAIT`).
const LOWERED: u64 = 600_000_000_000;

/// Fewer would send a slow service only a request for each response. As grants are spaced, a second
/// one is refused only if the network stalls.
const LEAST: u32 = 2;

#[cfg(test)]
mod tests;
