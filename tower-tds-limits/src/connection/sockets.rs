//! The account of the sockets: whether one more may be opened, and which leaves for it.
//!
//! Arithmetic on `now`. Events give the readers of the sockets that they have asked to leave, who
//! have yet to be woken.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::Duration,
};

use http::StatusCode;
use tokio::time::Instant;

use crate::{
    Limits, WaitCause,
    connection::{
        refusals::Refusals,
        usage::{Head, Mark, Rest, Usage},
    },
    queue::{Limit, Line, Opens},
};

/// The sockets between the permit before `connect` and their close.
#[derive(Debug)]
pub(crate) struct Connections {
    open: u32,
    most: u32,
    /// Those that have not ended on this side.
    sockets: BTreeMap<SocketKey, Socket>,
    /// How many there have ever been.
    opened: u64,
    /// Those that may be asked to leave, by when.
    idle: BTreeMap<(Instant, SocketKey), Rest>,
    /// Those asked to leave, and those ended on this side, by until when they are taken to be about to be gone.
    coming: BTreeSet<(Instant, SocketKey)>,
    /// The socket of the last 416.
    maybe_refused: Option<SocketKey>,
    refusals: Refusals,
}

/// One socket's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SocketKey(u64);

#[derive(Debug)]
struct Socket {
    /// Whether it was asked to leave since its reader looked. Set under the queue's lock, before the reader is woken.
    asked: Arc<AtomicBool>,
    usage: Usage,
    state: State,
    /// Whether it leaves as soon as it is free.
    condemned: bool,
    /// Who reads from it.
    reader: Option<Waker>,
}

/// What the limit makes of a socket's use; it looks at that once more when there is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Carries a request, or nobody knows what.
    // ## Busy => Idle
    Busy,
    /// May be asked to leave: from then on if somebody waits, and at once if the service asks.
    // ## Idle => (Busy | Leaving)
    Idle { rest: Rest, from: Instant },
    /// Asked to leave. A request that comes first takes that back, whether or not it is over when the
    /// limit looks: its reader is not woken again.
    // ## Leaving => (Busy | Idle)
    Leaving { taken_back: bool, until: Instant },
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            open: 0,
            most: limits.connections.get(),
            sockets: BTreeMap::new(),
            opened: 0,
            idle: BTreeMap::new(),
            coming: BTreeSet::new(),
            maybe_refused: None,
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

    /// There is a socket now, which is this while it carries nothing.
    pub(super) fn opened(
        &mut self,
        unused: Rest,
        asked: Arc<AtomicBool>,
        now: Instant,
    ) -> (SocketKey, Option<Waker>) {
        let key = SocketKey(self.opened);
        self.opened += 1;
        let socket = Socket {
            asked,
            usage: Usage::new(unused),
            state: State::Busy,
            condemned: false,
            reader: None,
        };
        self.sockets.insert(key, socket);
        (key, self.settle(key, now))
    }

    /// Something has happened to the socket's use. Says whether the limit has to look.
    pub(super) fn change<R>(
        &mut self,
        key: SocketKey,
        event: impl FnOnce(&mut Usage) -> R,
    ) -> Option<(R, bool)> {
        let socket = self.sockets.get_mut(&key)?;
        Some((event(&mut socket.usage), socket.notice()))
    }

    /// A head is here, of an answer that was taken out of the pool at `at`. What a 416 is about,
    /// whoever reads it will say. Says whether the limit has to look.
    pub(super) fn head(&mut self, key: SocketKey, head: Head, at: Option<Mark>) -> bool {
        if head.status == StatusCode::RANGE_NOT_SATISFIABLE {
            self.maybe_refused = Some(key);
        }
        // One that ended with its answer is forgotten by then.
        let Some(socket) = self.sockets.get_mut(&key) else {
            return false;
        };
        socket.usage.head(head, at);
        socket.notice()
    }

    /// Whether the reader is to be given the end of the stream; if not, it is woken for it. Gives
    /// the one that it takes the place of, too.
    pub(super) fn is_to_leave(&mut self, key: SocketKey, reader: &Waker) -> (bool, Option<Waker>) {
        let Some(socket) = self.sockets.get_mut(&key) else {
            return (false, None);
        };
        let leaves = matches!(
            socket.state,
            State::Leaving {
                taken_back: false,
                ..
            }
        );
        socket.asked.store(leaves, Ordering::Relaxed);
        let known = matches!(&socket.reader, Some(known) if known.will_wake(reader));
        let replaced = if known || leaves {
            None
        } else {
            socket.reader.replace(reader.clone())
        };
        (leaves, replaced)
    }

    /// Looks at what the socket is used for at `now`, if that is news.
    pub(super) fn settle(&mut self, key: SocketKey, now: Instant) -> Option<Waker> {
        let socket = self.sockets.get(&key).filter(|socket| socket.has_news())?;
        let (rest, condemned) = (socket.usage.rest(), socket.condemned);
        let next = rest.map_or(State::Busy, |rest| State::Idle {
            rest,
            from: now + rest.grace(),
        });
        self.set_state(key, next);
        if rest != Some(Rest::Free) {
            return None;
        }
        // It may be the one that was refused, or one too many by what was learnt from that.
        let leaves = condemned || self.silent_until(now).is_some() || self.is_over(now);
        leaves.then(|| self.ask(key, now))?
    }

    /// The service has too many connections at `now`. Returns the readers of the sockets that leave.
    pub(super) fn refused(&mut self, now: Instant) -> Vec<Waker> {
        let key = self.maybe_refused.take();
        if let Some(socket) = key.and_then(|key| self.sockets.get_mut(&key)) {
            socket.condemned = true;
        }
        self.refusals.refused(now, self.most);
        let free = self.idle.iter().filter(|(_, rest)| **rest == Rest::Free);
        let leaving: Vec<_> = free.map(|((_, key), _)| *key).collect();
        let leaving = leaving.into_iter();
        leaving.filter_map(|key| self.ask(key, now)).collect()
    }

    /// The socket has ended on this side at `now`. Gives who has read from it.
    pub(super) fn ended(&mut self, key: SocketKey, now: Instant) -> Option<Waker> {
        let socket = self.forget(key)?;
        let until = now + EXPECTED;
        self.coming.insert((until, key));
        socket.reader
    }

    /// The socket has ended on both sides. Gives who has read from it.
    pub(super) fn closed(&mut self, key: SocketKey) -> Option<Waker> {
        self.open -= 1;
        self.coming.retain(|(_, ended)| *ended != key);
        self.forget(key)?.reader
    }

    fn forget(&mut self, key: SocketKey) -> Option<Socket> {
        self.set_state(key, State::Busy);
        self.sockets.remove(&key)
    }

    /// Whether more are open than may be at `now`, those aside that are about to be gone.
    fn is_over(&mut self, now: Instant) -> bool {
        let gone = u32::try_from(self.coming(now)).unwrap_or(u32::MAX);
        self.open.saturating_sub(gone) > self.most_at(now)
    }

    /// How many are taken at `now` to be about to be gone.
    fn coming(&mut self, now: Instant) -> usize {
        while let Some(late) = self.coming.first().copied()
            && late.0 <= now
        {
            self.coming.remove(&late);
        }
        self.coming.len()
    }

    /// The socket that has been idle for longest, if that is long enough at `now`.
    fn next_to_leave(&self, now: Instant) -> Option<SocketKey> {
        // They are in the order in which they may be asked.
        let ((from, key), _) = self.idle.first_key_value()?;
        (*from <= now).then_some(*key)
    }

    /// Asks the socket to leave, unless a request has come first.
    fn ask(&mut self, key: SocketKey, now: Instant) -> Option<Waker> {
        let idle = self.sockets.get(&key)?.usage.rest().is_some();
        let leaving = State::Leaving {
            taken_back: false,
            // Its runtime may stand still.
            until: now + EXPECTED,
        };
        self.set_state(key, if idle { leaving } else { State::Busy });
        let socket = self.sockets.get_mut(&key)?;
        if idle {
            // Release: whoever polls since then sees it, or is woken after it.
            socket.asked.store(true, Ordering::Release);
        }
        socket.reader.take_if(|_| idle)
    }

    fn set_state(&mut self, key: SocketKey, state: State) {
        let Some(socket) = self.sockets.get_mut(&key) else {
            return;
        };
        match mem::replace(&mut socket.state, state) {
            State::Busy => {}
            State::Idle { from, .. } => drop(self.idle.remove(&(from, key))),
            State::Leaving { until, .. } => drop(self.coming.remove(&(until, key))),
        }
        match state {
            State::Busy => {}
            State::Idle { rest, from } => drop(self.idle.insert((from, key), rest)),
            State::Leaving { until, .. } => drop(self.coming.insert((until, key))),
        }
    }
}

impl Limit for Connections {
    type Grant = ();

    fn opens(&mut self, _line: Line, now: Instant) -> Opens {
        if let Some(until) = self.silent_until(now) {
            return Opens::At(until);
        }
        if self.open < self.most_at(now) {
            let next = self.refusals.next_connect(now);
            return next.map_or(Opens::Now, Opens::At);
        }
        // Whoever waits looks again then, and asks a socket to leave.
        let after = (now, SocketKey(u64::MAX));
        let asks_now = self.idle.range(..=after).next();
        let times = [
            asks_now.map(|_| now + EXPECTED),
            self.refusals.lowered_until(now),
            self.idle.range(after..).next().map(|((at, _), _)| *at),
            self.coming.range(after..).next().map(|(at, _)| *at),
        ];
        match times.into_iter().flatten().min() {
            Some(at) => Opens::At(at),
            None => Opens::OnReturn,
        }
    }

    fn admit(&mut self, now: Instant) {
        self.open += 1;
        self.refusals.connects(now);
    }

    /// Asks as many sockets to leave as it takes to let those through who wait.
    fn waits(&mut self, waiting: usize, now: Instant) -> Vec<Waker> {
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let short = (size(self.open) + waiting)
            .saturating_sub(size(self.most_at(now)))
            .min(waiting);
        let mut asked = Vec::new();
        while self.coming(now) < short
            && let Some(key) = self.next_to_leave(now)
        {
            asked.extend(self.ask(key, now));
        }
        asked
    }

    /// The permit of a connect that came to nothing.
    fn withdraw(&mut self, (): ()) {
        self.open -= 1;
    }

    fn cause(&mut self, _line: Line, now: Instant) -> WaitCause {
        match self.silent_until(now) {
            Some(_) => WaitCause::Silence,
            None => WaitCause::Connection,
        }
    }
}

// === impl Socket ===

impl Socket {
    /// Its use may have changed. Says whether the limit has to look.
    fn notice(&mut self) -> bool {
        if let State::Leaving { taken_back, .. } = &mut self.state {
            *taken_back |= self.usage.rest().is_none();
        }
        self.has_news()
    }

    /// Whether it is used otherwise than the limit knows.
    fn has_news(&self) -> bool {
        match (self.state, self.usage.rest()) {
            (State::Busy, None) => false,
            (State::Idle { rest: known, .. }, Some(rest)) => known != rest,
            (State::Leaving { taken_back, .. }, _) => taken_back,
            (State::Busy, Some(_)) | (State::Idle { .. }, None) => true,
        }
    }
}

// === impl Rest ===

impl Rest {
    /// How long it has to last before nobody misses the socket.
    const fn grace(self) -> Duration {
        match self {
            Self::Free => HANDED_ON,
            Self::Doubtful => STALLED,
        }
    }
}

/// For how long an upload that was answered early may move no byte, and a new connection carry
/// none: nginx waits as long for an answered client's next byte (`lingering_timeout`, 5 s).
const STALLED: Duration = Duration::from_secs(5);

/// A pool gives a free socket to a waiting request at once, so one that is free for so long has no request. Short
/// against the 100 ms in which a connect to another host shall begin.
const HANDED_ON: Duration = Duration::from_millis(20);

/// For how long a socket that was asked is awaited, and a server's own end, before another idle socket is closed for
/// whoever waits: most of the 100 ms in which its request shall go on. A server that has died would keep it
/// waiting for 30 s; one that is merely slow costs sockets that nobody uses.
const EXPECTED: Duration = Duration::from_millis(80);

#[cfg(test)]
mod tests;
