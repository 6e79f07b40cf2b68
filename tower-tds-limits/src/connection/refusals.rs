//! What follows when the service has refused a connection: arithmetic on `now`.
//!
//! The limit was kept, so somebody else behind the same address holds connections, or the
//! service counts ended ones for longer than this side. Either passes, and nobody says when.

use std::time::Duration;

use tokio::time::Instant;

/// The service's refusals of connections, and what they have taught.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<Refusal>,
}

#[derive(Debug, Clone, Copy)]
struct Refusal {
    /// No new connection before.
    silent_until: Instant,
    /// At most so many connections...
    most: u32,
    /// ...until then.
    until: Instant,
    /// How long that was.
    patience: Duration,
}

// === impl Refusals ===

impl Refusals {
    /// The service refused at `now`, when `open` connections were open of at most `most`.
    ///
    /// Gives whether it is news: refusals that come during the silence are answers to what was
    /// sent before it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a second, and at most 80 minutes, which no clock overflows"
    )]
    pub(super) fn refused_at(&mut self, now: Instant, open: u32, most: u32) -> bool {
        if self.silent_until(now).is_some() {
            return false;
        }
        let patience = match self.last {
            Some(last) if now < last.until => last.patience,
            // The whole limit was tried again, and that was too early.
            Some(last) if now < last.until + last.patience => {
                last.patience.saturating_mul(2).min(LONGEST_PATIENCE)
            }
            Some(_) | None => PATIENCE,
        };
        self.last = Some(Refusal {
            silent_until: now + SILENCE,
            most: self.most(now, most).min(open).saturating_sub(1).max(1),
            until: now + patience,
            patience,
        });
        true
    }

    /// Whether there has ever been one: without, the clock does not matter.
    pub(super) fn any(&self) -> bool {
        self.last.is_some()
    }

    /// How many connections may be open at `now`, of at most `most`.
    pub(super) fn most(&self, now: Instant, most: u32) -> u32 {
        self.last
            .filter(|last| now < last.until)
            .map_or(most, |last| last.most.min(most))
    }

    /// The end of the silence, while it lasts.
    pub(super) fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.last
            .map(|last| last.silent_until)
            .filter(|until| now < *until)
    }

    /// When the limit is whole again, while it is lowered.
    pub(super) fn lowered_until(&self, now: Instant) -> Option<Instant> {
        self.last
            .map(|last| last.until)
            .filter(|until| now < *until)
    }
}

/// Gateways that count the refused over a second (`HAProxy`, `http_req_rate(1s)`) lock out whoever
/// goes on at once: 394 to 550 of 600 requests in the study behind this crate.
const SILENCE: Duration = Duration::from_secs(1);

/// Longer than a packet filter counts a half-closed connection (Linux conntrack: 120 s in
/// `FIN_WAIT`), and at most one refusal in that time where a stranger stays.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Three doublings, as good as any: a stranger who stays costs eighteen refusals a day.
const LONGEST_PATIENCE: Duration = Duration::from_secs(80 * 60);

#[cfg(test)]
mod tests;
