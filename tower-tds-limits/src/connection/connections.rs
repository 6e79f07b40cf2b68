//! What decides whether one more socket may be opened, and which may be closed for it.

use std::{sync::Arc, task::Waker};

use tokio::time::Instant;

use crate::{
    Limits, WaitCause, clock,
    connection::{
        exit::{Exit, wake_readers},
        refusals::Refusals,
        sockets::{Rest, SocketKey, Sockets},
    },
    queue::{Limit, Line, Opens, Queue},
};

/// The sockets between the permit before `connect` and their close.
#[derive(Debug)]
pub(crate) struct Connections {
    open: u32,
    most: u32,
    sockets: Sockets,
    refusals: Refusals,
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            open: 0,
            most: limits.most_connections().get(),
            sockets: Sockets::default(),
            refusals: Refusals::default(),
        }
    }

    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    /// How many may be open at `now`.
    pub(crate) fn most_at(&self, now: Instant) -> u32 {
        self.refusals.most(now, self.most)
    }

    /// When connects begin again, if the service has just refused one.
    pub(crate) fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.refusals.silent_until(now)
    }

    /// There is a socket now.
    pub(super) fn opened(&mut self, exit: Arc<Exit>) -> SocketKey {
        self.sockets.add(exit)
    }

    /// The socket carries nothing at `now`. Gives those asked to leave.
    pub(super) fn rest(&mut self, key: SocketKey, rest: Rest, now: Instant) -> Vec<Arc<Exit>> {
        self.sockets.rest(key, rest, now);
        match self.silent_until(now) {
            // It may be the one that was refused.
            Some(_) => self.sockets.ask_free(),
            None => Vec::new(),
        }
    }

    /// The socket carries a request again. Says whether it had been asked to leave.
    pub(super) fn work(&mut self, key: SocketKey) -> bool {
        self.sockets.work(key)
    }

    /// The socket has ended on this side at `now`.
    pub(super) fn ended(&mut self, key: SocketKey, now: Instant) {
        self.sockets.ended(key, now);
    }

    /// The socket has ended on both sides.
    pub(super) fn closed(&mut self, key: SocketKey) {
        self.sockets.remove(key);
        self.give_back();
    }

    /// The permit of a connect that came to nothing.
    pub(super) fn give_back(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// The service refused a connection at `now`. Gives those asked to leave.
    fn refused_at(&mut self, now: Instant) -> Vec<Arc<Exit>> {
        if self.refusals.refused_at(now, self.open, self.most) {
            self.sockets.ask_free()
        } else {
            Vec::new()
        }
    }

    /// Asks as many sockets to leave as it takes to let `waiting` connects through.
    fn make_room(&mut self, now: Instant, waiting: usize) -> Vec<Arc<Exit>> {
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let short = size(self.open)
            .saturating_add(waiting)
            .saturating_sub(size(self.most_at(now)))
            .min(waiting)
            .saturating_sub(self.sockets.expected(now));
        (0..short)
            .map_while(|_| self.sockets.ask_one(now))
            .collect()
    }
}

impl Limit for Connections {
    type Grant = ();

    fn opens(&mut self, _line: Line, now: Instant) -> Opens {
        if let Some(until) = self.silent_until(now) {
            return Opens::At(until);
        }
        if self.open < self.most_at(now) {
            return Opens::Now;
        }
        let restored = self.refusals.lowered_until(now);
        let sooner = self.sockets.next_after(now);
        // Whoever waits looks again then, and asks a socket to leave.
        match restored.into_iter().chain(sooner).min() {
            Some(at) => Opens::At(at),
            None => Opens::OnReturn,
        }
    }

    fn admit(&mut self, _line: Line, _now: Instant) {
        self.open = self.open.saturating_add(1);
    }

    fn admit_undated(&mut self, _line: Line) -> Option<()> {
        let room = self.open < self.most && !self.refusals.any();
        room.then(|| self.open = self.open.saturating_add(1))
    }

    fn make_room(&mut self, waiting: usize, now: Instant) -> Vec<Waker> {
        let asked = Self::make_room(self, now, waiting);
        asked.iter().filter_map(|exit| exit.take_reader()).collect()
    }

    fn is_idle(&self) -> bool {
        self.open == 0
    }

    fn cause(&mut self, _line: Line, now: Instant) -> WaitCause {
        match self.silent_until(now) {
            Some(_) => WaitCause::Silence,
            None => WaitCause::Connection,
        }
    }
}

/// Asks idle sockets to leave while connects wait for a permit.
pub(super) fn make_room(gate: &Queue<Connections>) {
    let leaving = gate.read_all(|connections, waiting, _| {
        if waiting == 0 {
            return Vec::new();
        }
        connections.make_room(clock::now(), waiting)
    });
    wake_readers(leaving);
}

/// The service has answered that there are too many connections: no new one for a second, free
/// sockets are closed, and for a while fewer are opened.
pub(crate) fn refused(gate: &Queue<Connections>) {
    wake_readers(gate.update_now(Connections::refused_at));
}

#[cfg(test)]
mod tests;
