//! Refused connections (416), and how many sockets are opened after one: arithmetic on `now`.
//!
//! The limit was kept, so another client behind the same address holds connections, or the service counts ended ones
//! for longer than this side. Either passes, and nothing tells when.

use std::time::Duration;

use tokio::time::Instant;

/// The service's refusals of connections, and what they have taught.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// No new connection before.
    silent_until: Option<Instant>,
    /// At most so many connections, until then.
    lowered: Option<(u32, Instant)>,
    last_connect: Option<Instant>,
}

// === impl Refusals ===

impl Refusals {
    /// The service refused at `now`, when at most `most` connections were allowed.
    ///
    /// Refusals in the silence answer what was sent before it, and change nothing.
    pub(super) fn refused(&mut self, now: Instant, most: u32) {
        if self.silent_until(now).is_some() {
            return;
        }
        let most = self.most(now, most);
        let lowered = (most - most.div_ceil(SHARE)).max(1);
        self.silent_until = Some(now + SILENCE);
        self.lowered = Some((lowered, now + PATIENCE));
    }

    /// A connection is begun at `now`.
    pub(super) fn connects(&mut self, now: Instant) {
        self.last_connect = Some(now);
    }

    /// When the next connection may be begun, if not at `now`: while the limit is lowered, one is tried at a time.
    pub(super) fn next_connect(&self, now: Instant) -> Option<Instant> {
        self.lowered_until(now)?;
        let next = self.last_connect? + TRIED;
        (now < next).then_some(next)
    }

    /// How many connections may be open at `now`, of at most `most`.
    pub(super) fn most(&self, now: Instant, most: u32) -> u32 {
        self.lowered
            .filter(|(_, until)| now < *until)
            .map_or(most, |(lowered, _)| lowered.min(most))
    }

    /// The end of the silence, while it lasts.
    pub(super) fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.silent_until.filter(|until| now < *until)
    }

    /// When the limit is whole again, while it is lowered.
    pub(super) fn lowered_until(&self, now: Instant) -> Option<Instant> {
        let until = self.lowered.map(|(_, until)| until);
        until.filter(|until| now < *until)
    }
}

/// Gateways that count the refused over a second (`HAProxy`, `http_req_rate(1s)`) lock out whoever
/// goes on at once: 394 to 550 of 600 requests in the study behind this crate.
const SILENCE: Duration = Duration::from_secs(1);

/// A sixth less for each refusal. One less is not enough: where a gateway refuses requests on connections that work,
/// one fewer leaves nearly as many too many, and each try costs refusals.
const SHARE: u32 = 6;

/// For how long a new connection's first answer is waited for before the next one is tried: a usual answer.
const TRIED: Duration = Duration::from_millis(100);

/// Longer than a packet filter counts a half-closed connection (Linux conntrack: 120 s in
/// `FIN_WAIT`).
const PATIENCE: Duration = Duration::from_secs(10 * 60);

#[cfg(test)]
mod tests;
