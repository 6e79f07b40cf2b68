//! The account of the sockets: whether one more may be opened. Arithmetic on `now`.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    Limits, WaitCause,
    wait::{Limit, Line, Opens, Shared},
};

/// Sockets from the permit before `connect` until the server has closed them.
#[derive(Debug)]
pub(crate) struct Connections {
    most: u32,
    data: u32,
    /// Sockets of the limiter that is first in line.
    tokens: u32,
    /// When permits that linger go back, in order.
    lingering: VecDeque<(Instant, Line)>,
    /// No connect begins before this.
    silent_until: Option<Instant>,
    /// The limit after a 416, and until when.
    lowered: Option<(u32, Instant)>,
    /// When the share of a fleet's limits ends.
    closes_at: Option<Instant>,
}

/// A permit of one socket.
///
/// Dropping it keeps it for one more second: whatever is given up may still be accepted or counted by
/// the server. [`release`](Self::release) gives it back at once.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    shared: Arc<Shared<Connections>>,
    /// There until it is released.
    line: Option<Line>,
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            most: limits.connections.get(),
            data: 0,
            tokens: 0,
            lingering: VecDeque::new(),
            silent_until: None,
            lowered: None,
            closes_at: None,
        }
    }

    /// Changes the limit, and opens nothing from `until` on. Open sockets stay, and new ones are opened
    /// below it.
    pub(crate) fn set_share(&mut self, most: u32, until: Instant) {
        self.most = most;
        self.closes_at = Some(until);
    }

    /// How many sockets have a permit at `now`.
    pub(crate) fn open(&mut self, now: Instant) -> u32 {
        while let Some((at, line)) = self.lingering.front().copied()
            && at <= now
        {
            self.lingering.pop_front();
            *self.count(line) -= 1;
        }
        self.data + self.tokens
    }

    /// How many may be open at `now`.
    pub(crate) fn most_at(&self, now: Instant) -> u32 {
        let lowered = self.lowered.filter(|(_, until)| now < *until);
        lowered.map_or(self.most, |(most, _)| most.min(self.most))
    }

    /// When connects begin again, if a 416 has stopped them.
    pub(crate) fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.silent_until.filter(|until| now < *until)
    }

    /// Records a 416 at `now`, and returns whether a silence begins. One within a silence answers what
    /// was sent before it, and changes nothing.
    pub(super) fn refused(&mut self, now: Instant) -> bool {
        if self.silent_until(now).is_some() {
            return false;
        }
        self.silent_until = Some(now + SILENCE);
        let most = self.most_at(now);
        // While more are open than that, a lower limit avoids nothing.
        if most > 1 && self.open(now) <= most {
            self.lowered = Some((most - most.div_ceil(6), now + LOWERED));
        }
        true
    }

    fn release(&mut self, line: Line) {
        *self.count(line) -= 1;
    }

    fn linger(&mut self, line: Line, now: Instant) {
        self.lingering.push_back((now + LINGERS, line));
    }

    fn count(&mut self, line: Line) -> &mut u32 {
        match line {
            Line::Front => &mut self.tokens,
            Line::Back => &mut self.data,
        }
    }
}

impl Limit for Connections {
    type Grant = Line;

    fn opens(&mut self, line: Line, now: Instant) -> Opens {
        if self.closes_at.is_some_and(|closes_at| closes_at <= now) {
            return Opens::OnReturn;
        }
        if let Some(until) = self.silent_until(now) {
            return Opens::At(until);
        }
        let most = self.most_at(now);
        let has_room = self.open(now) < most;
        // The last place is for a token request, without which data requests cannot be sent.
        if has_room && (line == Line::Front || most == 1 || self.data < most - 1) {
            return Opens::Now;
        }
        let returns = self.lingering.front().map(|(at, _)| *at);
        let rises = self.lowered.map(|(_, until)| until);
        let times = [returns, rises.filter(|until| now < *until)];
        match times.into_iter().flatten().min() {
            Some(at) => Opens::At(at),
            None => Opens::OnReturn,
        }
    }

    fn admit(&mut self, line: Line, _now: Instant) -> Line {
        *self.count(line) += 1;
        line
    }

    fn cause(&mut self, _line: Line, now: Instant) -> WaitCause {
        match self.silent_until(now) {
            Some(_) => WaitCause::Silence,
            None => WaitCause::Connection,
        }
    }
}

// === impl ConnectionPermit ===

impl ConnectionPermit {
    pub(super) fn new(shared: &Arc<Shared<Connections>>, line: Line) -> Self {
        Self {
            shared: Arc::clone(shared),
            line: Some(line),
        }
    }

    /// Gives it back at once: there is no connection at the server.
    pub(super) fn release(mut self) {
        if let Some(line) = self.line.take() {
            self.shared.update(|connections| connections.release(line));
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            let linger = |connections: &mut Connections, now| connections.linger(line, now);
            self.shared.update_now(linger);
        }
    }
}

/// A segment meets the server after the path's delay, in which the study behind this crate had stalls
/// of 300 ms; and the next connect takes the same path.
const LINGERS: Duration = Duration::from_secs(1);

/// Gateways that count the refused over a second (`HAProxy`, `http_req_rate(1s)`) lock out a client
/// that goes on at once: 394 to 550 of 600 requests in the study.
const SILENCE: Duration = Duration::from_secs(1);

/// Longer than a packet filter counts a half-closed connection (Linux conntrack: 120 s in
/// `FIN_WAIT`).
const LOWERED: Duration = Duration::from_secs(10 * 60);

#[cfg(test)]
mod tests;
