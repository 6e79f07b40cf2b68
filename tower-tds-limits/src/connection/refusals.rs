//! Refused connections (416), and how many sockets are opened after one: arithmetic on `now`.
//!
//! The limit was kept, so somebody else behind the same address holds connections, or the
//! service counts ended ones for longer than this side. Either passes, and nobody says when.
//! Or the answer was not about connections at all.

use std::time::Duration;

use tokio::time::Instant;

/// The service's refusals of connections, and what they have taught.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// No new connection before.
    silent_until: Option<Instant>,
    /// Until then one connection is tried at a time, and a new one that is refused lowers the
    /// limit.
    suspect_until: Option<Instant>,
    /// Of the refusals on connections that had worked, less those answered since.
    weight: u32,
    lowered: Option<Lowered>,
    last_connect: Option<Instant>,
}

/// How much a refusal says about connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// It was a new connection's first answer: gateways count at the accept.
    Strong,
    /// The connection had been accepted before. Some gateways refuse all of them when there are
    /// too many; and some services say the same of a range.
    Weak,
}

#[derive(Debug, Clone, Copy)]
struct Lowered {
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
    /// Gives whether it is news, for which idle connections make room: refusals that come during
    /// the silence are answers to what was sent before it.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        evidence: Evidence,
        open: u32,
        most: u32,
    ) -> bool {
        if self.silent_until(now).is_some() {
            return false;
        }
        let most = self.most(now, most);
        // A sixth less, whatever one refusal suggests.
        let least = most.saturating_sub(most.div_ceil(6)).max(1);
        match evidence {
            Evidence::Strong => {
                if self.is_suspect(now) {
                    self.lower(now, most.min(open).saturating_sub(1).max(least));
                }
            }
            Evidence::Weak => {
                self.weight = self.weight.saturating_add(WEAK);
                if self.weight < ENOUGH {
                    return true;
                }
                self.lower(now, least);
            }
        }
        self.weight = 0;
        self.silent_until = now.checked_add(SILENCE);
        self.suspect_until = now.checked_add(SUSPICION);
        true
    }

    fn lower(&mut self, now: Instant, most: u32) {
        let patience = match self.lowered {
            Some(last) if now < last.until => last.patience,
            // The whole limit was tried again, and that was too early.
            Some(last) if now.saturating_duration_since(last.until) < last.patience => {
                last.patience.saturating_mul(2).min(LONGEST_PATIENCE)
            }
            Some(_) | None => PATIENCE,
        };
        self.lowered = Some(Lowered {
            most,
            until: now.checked_add(patience).unwrap_or(now),
            patience,
        });
    }

    /// A request was answered to its end.
    pub(super) fn answered(&mut self) {
        self.weight = self.weight.saturating_sub(1);
    }

    /// A connection is begun at `now`.
    pub(super) fn connects(&mut self, now: Instant) {
        self.last_connect = Some(now);
    }

    /// When the next connection may be begun, if not at `now` and `untried` of those begun have
    /// not been accepted: while the limit is in doubt, one is tried at a time.
    pub(super) fn next_connect(&self, now: Instant, untried: u32) -> Option<Instant> {
        if untried == 0 || !(self.is_suspect(now) || self.lowered_until(now).is_some()) {
            return None;
        }
        let next = self.last_connect?.checked_add(TRIED)?;
        (now < next).then_some(next)
    }

    /// Whether there has ever been one: without, the clock does not matter.
    pub(super) fn any(&self) -> bool {
        self.suspect_until.is_some()
    }

    /// How many connections may be open at `now`, of at most `most`.
    pub(super) fn most(&self, now: Instant, most: u32) -> u32 {
        self.lowered
            .filter(|lowered| now < lowered.until)
            .map_or(most, |lowered| lowered.most.min(most))
    }

    /// The end of the silence, while it lasts.
    pub(super) fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.silent_until.filter(|until| now < *until)
    }

    /// When the limit is whole again, while it is lowered.
    pub(super) fn lowered_until(&self, now: Instant) -> Option<Instant> {
        let until = self.lowered.map(|lowered| lowered.until);
        until.filter(|until| now < *until)
    }

    /// Whether connections are tried one at a time.
    pub(super) fn is_suspect(&self, now: Instant) -> bool {
        self.suspect_until.is_some_and(|until| now < until)
    }
}

/// Gateways that count the refused over a second (`HAProxy`, `http_req_rate(1s)`) lock out whoever
/// goes on at once: 394 to 550 of 600 requests in the study behind this crate.
const SILENCE: Duration = Duration::from_secs(1);

/// Longer than it takes to find where connections are refused again, one at a time.
const SUSPICION: Duration = Duration::from_secs(60);

/// For how long a new connection's first answer is waited for before the next one is tried.
const TRIED: Duration = Duration::from_secs(1);

/// How many answers outweigh one refusal on a connection that had worked. Where one answer of a
/// hundred was a 416 about something else, the limit was not lowered in 28,462 answers
/// (`tests/connections/stranger.rs`).
const WEAK: u32 = 8;

/// Four of them within a few answers: a service that refuses for connections refuses most.
const ENOUGH: u32 = 4 * WEAK - 3;

/// Longer than a packet filter counts a half-closed connection (Linux conntrack: 120 s in
/// `FIN_WAIT`), and at most one refusal in that time where a stranger stays.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Three doublings, as good as any: a stranger who stays costs some dozens of refusals a day.
const LONGEST_PATIENCE: Duration = Duration::from_secs(80 * 60);

#[cfg(test)]
mod tests;
