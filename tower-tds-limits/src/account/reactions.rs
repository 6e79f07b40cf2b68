//! Reactions to refusals: closed requests, sockets and credentials, each until a time. All of it is
//! arithmetic on `now`, under the lock of the account.
//!
//! | outcome | closed | until |
//! |---|---|---|
//! | 423 | all requests | a second later |
//! | 416 | all requests and connects | a second later |
//! | | a sixth of the sockets, and the places in flight beyond the data sockets | ten minutes later |
//! | 429 | the requests of one credential | its `Retry-After`, or twice the last pause |
//! | end of a share | everything | the next share |
//!
//! Sockets have a lock of their own, so the account hands them each change as one value:
//! [`Sockets`].

use std::time::Duration;

use tokio::time::Instant;
use tower_tds_outcome::Outcome;

use crate::{
    clock::{Tick, nanos},
    error::WaitCause,
};

/// Whether the service answered the request within its limits. After a gateway's 504 that is unknown, because the service
/// behind it may begin the request within the next second.
#[inline]
pub(crate) const fn is_within(outcome: Outcome) -> bool {
    !matches!(
        outcome,
        Outcome::RateExceeded
            | Outcome::ConnectionsExceeded
            | Outcome::QuotaExceeded(_)
            | Outcome::GatewayTimedOut
            | Outcome::Unsent
            | Outcome::Lost
    )
}

/// Everything that is closed for a time.
#[derive(Debug, Default)]
pub(crate) struct Reactions {
    silent_until: Tick,
    /// End of the silence after a 416.
    pub(super) connects_at: Tick,
    /// Limit of sockets after a 416, and until when it applies.
    pub(super) lowered: Option<(u32, Tick)>,
    /// Until when requests close their sockets.
    closing_until: Tick,
    /// Pauses from a 429 to the next accepted response.
    pauses: Vec<(Key, Pause)>,
    /// Number of credentials so far.
    keys: u64,
    /// End of the share, if there is one.
    pub(super) share_ends: Option<Tick>,
    /// Fault because of which the share is not renewed.
    pub(crate) store_fault: Option<&'static str>,
}

/// Number of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(pub(super) u64);

/// Pause of one credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    /// When calls are sent again.
    pub(crate) until: Tick,
    /// End that the service announced. It may be later than `until`.
    pub(crate) announced: Tick,
    /// Length of this pause. The next one is twice as long if the service announces none.
    length: u64,
}

/// Closed sockets, for the lock of the sockets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sockets {
    /// When connects begin again.
    pub(crate) connects_at: Option<Instant>,
    /// Limit of sockets, and until when it applies.
    pub(crate) lowered: Option<(u32, Instant)>,
}

/// Beginning of a reaction, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    Nothing,
    Silence,
    /// A silence of requests and connects.
    FewerSockets,
    /// A pause of this length.
    Pause(Duration),
}

// === impl Reactions ===

impl Reactions {
    /// Returns the number of another credential.
    pub(crate) fn key(&mut self) -> Key {
        self.keys += 1;
        Key(self.keys)
    }

    /// Records an outcome of this credential, with the sockets that are open and allowed.
    pub(crate) fn on(
        &mut self,
        outcome: Outcome,
        now: Tick,
        key: Key,
        (open, most): (u32, u32),
    ) -> Begins {
        match outcome {
            Outcome::RateExceeded => {
                self.silent_until = now.plus(SILENCE);
                Begins::Silence
            }
            // This 416 answers a request that was sent before the silence, so it lowers nothing.
            Outcome::ConnectionsExceeded if now < self.connects_at => {
                self.silent_until = now.plus(SILENCE);
                Begins::Nothing
            }
            Outcome::ConnectionsExceeded => {
                self.silent_until = now.plus(SILENCE);
                self.connects_at = self.silent_until;
                self.closing_until = self.closing_until.max(now.plus(CLOSING));
                let most = self.most_sockets(now).unwrap_or(most).min(most);
                // While more sockets are open than the limit allows, a lower limit would avoid
                // nothing.
                if most > 1 && open <= most {
                    self.lowered = Some((most - most.div_ceil(6), now.plus(LOWERED)));
                }
                Begins::FewerSockets
            }
            Outcome::QuotaExceeded(hint) => self.pause(now, key, hint),
            outcome if is_within(outcome) => {
                // A request that was sent before the pause does not end it.
                self.pauses
                    .retain(|(of, pause)| *of != key || now < pause.until);
                Begins::Nothing
            }
            _ => Begins::Nothing,
        }
    }

    /// Returns until when all requests wait, and for what. The pause of one credential is not
    /// included: its calls keep their places, and others pass them.
    #[inline]
    pub(crate) fn closed_until(&self, now: Tick) -> (Tick, WaitCause) {
        match self.share_ends {
            Some(ends) if ends <= now => {
                let cause = self.store_fault.map_or(WaitCause::Share, WaitCause::Store);
                (Tick::NEVER, cause)
            }
            Some(_) | None => (self.silent_until, WaitCause::Silence),
        }
    }

    /// Returns the end of the silence, if it is after `now`.
    pub(crate) fn silence(&self, now: Tick) -> Option<Tick> {
        Some(self.silent_until).filter(|until| now < *until)
    }

    pub(crate) fn pause_of(&self, key: Key) -> Option<Pause> {
        let pause = self.pauses.iter().find(|(of, _)| *of == key);
        pause.map(|(_, pause)| *pause)
    }

    /// Forgets a credential.
    pub(crate) fn forget(&mut self, key: Key) {
        self.pauses.retain(|(of, _)| *of != key);
    }

    /// Ends the share at `ends`. Until then requests close their sockets if too many are open.
    pub(crate) fn share_until(&mut self, ends: Tick, too_many: bool, now: Tick) {
        self.share_ends = Some(ends);
        if too_many {
            self.closing_until = ends;
        } else if self.most_sockets(now).is_none() {
            self.closing_until = Tick::ZERO;
        }
    }

    /// Whether a request that is granted at `now` closes its socket.
    #[inline]
    pub(crate) fn closes_socket(&self, now: Tick) -> bool {
        now < self.closing_until
    }

    /// Returns the limit of requests in flight, because more would get no socket.
    #[inline]
    pub(crate) fn most_in_flight(&self, now: Tick) -> u32 {
        self.most_sockets(now).map_or(u32::MAX, data_sockets)
    }

    /// Returns the limit of sockets after a 416.
    #[inline]
    fn most_sockets(&self, now: Tick) -> Option<u32> {
        let lowered = self.lowered.filter(|(_, until)| now < *until);
        lowered.map(|(most, _)| most)
    }

    /// Records a 429 at `now`, with the hint of its response.
    fn pause(&mut self, now: Tick, key: Key, hint: Option<Duration>) -> Begins {
        let last = self.pause_of(key);
        let is_within = last.is_some_and(|last| now < last.until);
        let usual = last.map_or(SHORTEST, |last| last.length.saturating_mul(2).min(LONGEST));
        let wait = match hint {
            Some(hint) => nanos(hint).clamp(SHORTEST, YEAR),
            None if is_within => 0,
            None => usual,
        };
        let mut next = Pause {
            until: now.plus(wait.min(LONGEST)),
            announced: now.plus(wait),
            length: wait.min(LONGEST),
        };
        if let Some(last) = last {
            if is_within {
                // The refused request was sent before this pause began, so the 429 can only
                // lengthen it.
                next.until = next.until.max(last.until);
                next.length = last.length;
            }
            if is_within || hint.is_none() {
                next.announced = next.announced.max(last.announced);
            }
        }
        self.forget(key);
        self.pauses.push((key, next));
        if is_within {
            Begins::Nothing
        } else {
            Begins::Pause(Duration::from_nanos(wait))
        }
    }
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

/// Longer than a packet filter counts a half-closed connection (Linux conntrack: 120 s in
/// `FIN_WAIT`).
const LOWERED: u64 = 600_000_000_000;

/// A shorter pause only leads to more refused requests.
const SHORTEST: u64 = 1_000_000_000;

/// A pause never holds calls longer than this; beyond it they are rejected. Once a minute some
/// calls are sent, whatever end was announced, because they show whether a daily quota was reset.
/// So no announced end stops a credential for ever.
pub(crate) const LONGEST: u64 = 60_000_000_000;

/// Longer announced waits count as a year, which cannot overflow an instant.
const YEAR: u64 = 366 * 86_400_000_000_000;

#[cfg(test)]
mod tests;
