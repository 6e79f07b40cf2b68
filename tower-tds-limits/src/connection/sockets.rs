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
        refusals::{Evidence, Refusals},
        usage::{Head, Mark, Rest, Usage},
        waiting::{HANDED_ON, Waiting},
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
    waiting: Waiting,
    /// Permits that have not come to an accepted request yet.
    untried: u32,
    /// The last 416, and whether its socket had worked before.
    maybe_refused: Option<(SocketKey, Evidence)>,
    refusals: Refusals,
}

/// One socket's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SocketKey(u64);

/// What a socket and the limit tell each other without the lock.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Whether it was asked to leave since its reader looked. Set under the queue's lock, before the reader is woken.
    pub(super) asked: AtomicBool,
    /// Whether it has carried an answer that was no 416: a head may be read when the socket has ended already,
    /// and is forgotten. Set and read under the queue's lock, which orders it.
    pub(super) worked: AtomicBool,
}

#[derive(Debug)]
struct Socket {
    told: Arc<Told>,
    usage: Usage,
    state: State,
    /// Whether the service has accepted a request on it.
    tried: bool,
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
            waiting: Waiting::default(),
            untried: 0,
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

    fn open_one(&mut self) {
        self.open = self.open.saturating_add(1);
        self.untried = self.untried.saturating_add(1);
    }

    /// One who waited has left, because a pool has handed on a socket to its request.
    pub(super) fn served(&mut self, was_first: bool, now: Instant) {
        self.waiting.served(was_first, now);
    }

    /// There is a socket now, which is this while it carries nothing.
    pub(super) fn opened(
        &mut self,
        unused: Rest,
        told: Arc<Told>,
        now: Instant,
    ) -> (SocketKey, Option<Waker>) {
        let key = SocketKey(self.opened);
        self.opened = self.opened.saturating_add(1);
        let socket = Socket {
            told,
            usage: Usage::new(unused),
            state: State::Busy,
            tried: false,
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
    pub(super) fn head(
        &mut self,
        key: SocketKey,
        has_worked: bool,
        head: Head,
        at: Option<Mark>,
    ) -> bool {
        let is_refused = head.status == StatusCode::RANGE_NOT_SATISFIABLE;
        if is_refused {
            let evidence = if has_worked {
                Evidence::Weak
            } else {
                Evidence::Strong
            };
            self.maybe_refused = Some((key, evidence));
        }
        // One that ended with its answer is forgotten by then.
        let Some(socket) = self.sockets.get_mut(&key) else {
            return false;
        };
        socket.usage.head(head, at);
        let first = !is_refused && !mem::replace(&mut socket.tried, true);
        self.untried = self.untried.saturating_sub(u32::from(first));
        socket.notice() || first
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
        socket.told.asked.store(leaves, Ordering::Relaxed);
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
        let (was, rest, condemned) = (socket.state, socket.usage.rest(), socket.condemned);
        let next = rest.map_or(State::Busy, |rest| State::Idle {
            rest,
            from: self.idle_from(rest, now),
        });
        self.set_state(key, next);
        // A new one is its own request's.
        let was_free = match was {
            State::Leaving { .. } => true,
            State::Idle { rest, .. } => rest == Rest::Free,
            State::Busy => false,
        };
        if rest.is_none() && was_free {
            self.waiting.hand_on(now);
        }
        if rest != Some(Rest::Free) {
            return None;
        }
        self.refusals.answered();
        // It may be the one that was refused, or one too many by what was learnt from that.
        let leaves = condemned || self.silent_until(now).is_some() || self.is_over(now);
        leaves.then(|| self.ask(key, now))?
    }

    /// A socket that was about to be free was given to another request at `now`.
    pub(super) fn handed_on(&mut self, now: Instant) {
        self.waiting.hand_on(now);
        self.refusals.answered();
    }

    /// The service has too many connections at `now`, as a request was told. Gives who is to leave, and
    /// whether there is a silence.
    pub(super) fn refused(&mut self, now: Instant) -> (Vec<Waker>, bool) {
        let (key, evidence) = match self.maybe_refused.take() {
            // While one is tried at a time, that one may be what makes all of them too many.
            Some((key, _)) if self.refusals.is_suspect(now) && self.untried > 0 => {
                (Some(key), Evidence::Strong)
            }
            Some((key, evidence)) => (Some(key), evidence),
            None => (None, Evidence::Strong),
        };
        if let Some(socket) = key.and_then(|key| self.sockets.get_mut(&key)) {
            socket.condemned = true;
        }
        let (open, most) = (self.open, self.most);
        let news = self.refusals.refused(now, evidence, open, most);
        let silent = self.silent_until(now).is_some();
        if !news {
            return (Vec::new(), silent);
        }
        let leaves = |from| silent || now.saturating_duration_since(from) >= UNUSED;
        let free = self.idle.iter().filter(|(_, rest)| **rest == Rest::Free);
        let leaving = free.filter(|((from, _), _)| leaves(*from));
        let leaving: Vec<_> = leaving.map(|((_, key), _)| *key).collect();
        let leaving = leaving.into_iter().filter_map(|key| self.ask(key, now));
        (leaving.collect(), silent)
    }

    /// The socket has ended on this side at `now`. Gives who has read from it.
    pub(super) fn ended(&mut self, key: SocketKey, now: Instant) -> Option<Waker> {
        let socket = self.forget(key)?;
        let until = now.checked_add(EXPECTED).unwrap_or(now);
        self.coming.insert((until, key));
        socket.reader
    }

    /// The socket has ended on both sides. Gives who has read from it.
    pub(super) fn closed(&mut self, key: SocketKey) -> Option<Waker> {
        self.open = self.open.saturating_sub(1);
        self.coming.retain(|(_, ended)| *ended != key);
        self.forget(key)?.reader
    }

    fn forget(&mut self, key: SocketKey) -> Option<Socket> {
        self.set_state(key, State::Busy);
        let socket = self.sockets.remove(&key)?;
        self.untried = self.untried.saturating_sub(u32::from(!socket.tried));
        Some(socket)
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

    /// From when on one that rests since `now` may be asked to leave: at once if whoever waits was passed over.
    fn idle_from(&mut self, rest: Rest, now: Instant) -> Instant {
        let at_once = rest == Rest::Free && self.waiting.is_passed_over(now);
        if at_once && self.coming(now) == 0 {
            return now;
        }
        now.checked_add(rest.grace()).unwrap_or(now)
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
            until: now.checked_add(EXPECTED).unwrap_or(now),
        };
        self.set_state(key, if idle { leaving } else { State::Busy });
        let socket = self.sockets.get_mut(&key)?;
        if idle {
            // Release: whoever polls since then sees it, or is woken after it.
            socket.told.asked.store(true, Ordering::Release);
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
            let next = self.refusals.next_connect(now, self.untried);
            return next.map_or(Opens::Now, Opens::At);
        }
        // Whoever waits looks again then, and asks a socket to leave.
        let after = (now, SocketKey(u64::MAX));
        let asks_now = self.idle.range(..=after).next();
        let times = [
            asks_now.and_then(|_| now.checked_add(EXPECTED)),
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
        self.open_one();
        self.refusals.connects(now);
        self.waiting.passed();
    }

    fn admit_undated(&mut self, _line: Line) -> Option<()> {
        let room = self.open < self.most && !self.refusals.any();
        room.then(|| self.open_one())
    }

    /// Asks as many sockets to leave as it takes to let those through who wait.
    fn waits(&mut self, waiting: usize, now: Instant) -> Vec<Waker> {
        self.waiting.set(waiting);
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let short = size(self.open)
            .saturating_add(waiting)
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
        self.open = self.open.saturating_sub(1);
        self.untried = self.untried.saturating_sub(1);
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

/// What has been free for so long is not in use: a pool takes the socket that was free last. It
/// leaves at the first 416, whatever that is about; the others only if it is about connections.
const UNUSED: Duration = Duration::from_secs(1);

/// For how long a socket that was asked is awaited, and a server's own end, before another idle socket is closed for
/// whoever waits: most of the 100 ms in which its request shall go on. A server that has died would keep it
/// waiting for 30 s; one that is merely slow costs sockets that nobody uses.
const EXPECTED: Duration = Duration::from_millis(80);

#[cfg(test)]
mod tests;
