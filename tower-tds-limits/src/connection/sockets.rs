//! The account of the sockets: whether one more may be opened, and which leaves for it.
//!
//! Arithmetic on `now`. Every event gives the sockets that were asked to leave by it, whose
//! readers have yet to be woken.

use std::{collections::BTreeSet, mem, sync::Arc, task::Waker, time::Duration};

use tokio::time::Instant;

use crate::{
    Limits, WaitCause,
    connection::{
        refusals::{Evidence, Refusals},
        usage::{Rest, Usage},
        waiting::{HANDED_ON, Ticket, Waiting},
    },
    queue::{Limit, Line, Opens},
};

/// The sockets between the permit before `connect` and their close.
#[derive(Debug)]
pub(crate) struct Connections {
    open: u32,
    most: u32,
    /// By key.
    places: Vec<Place>,
    vacant: Vec<usize>,
    /// Those that nobody misses, and those of which that is not sure, by when they may be asked.
    free: BTreeSet<(Instant, usize)>,
    doubtful: BTreeSet<(Instant, usize)>,
    /// Those asked to leave that have not left yet.
    leaving: usize,
    /// Those ended on this side, by until when the other is taken to be about to follow.
    ending: BTreeSet<(Instant, usize)>,
    waiting: Waiting,
    /// Permits that have not come to an accepted request yet.
    untried: u32,
    /// The last 416, and whether its socket had worked before.
    maybe_refused: Option<(SocketKey, Evidence)>,
    refusals: Refusals,
}

/// One socket's number, good until it has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketKey(usize);

#[derive(Debug)]
enum Place {
    /// A key to be used again.
    // ## Vacant => Open
    Vacant,
    // ## Open => Ending
    Open(Socket),
    /// Ended on this side; the other is awaited until then, or was.
    // ## Ending => Vacant
    Ending {
        until: Instant,
    },
}

#[derive(Debug)]
struct Socket {
    usage: Arc<Usage>,
    state: State,
    tried: bool,
    /// Whether it leaves as soon as it is free.
    condemned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Carries a request, or nobody knows what.
    // ## Busy => Idle
    Busy,
    /// May be asked to leave: from then on if somebody waits, and at once if the service asks.
    // ## Idle => (Busy | Leaving)
    Idle { rest: Rest, from: Instant },
    /// Asked to leave. A request that comes first takes that back.
    // ## Leaving => (Busy | Idle)
    Leaving,
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            open: 0,
            most: limits.most_connections().get(),
            places: Vec::new(),
            vacant: Vec::new(),
            free: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            leaving: 0,
            ending: BTreeSet::new(),
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

    /// Somebody begins to wait.
    pub(super) fn waits(&mut self) -> Ticket {
        self.waiting.join()
    }

    /// Somebody has got a permit, or waits no more.
    pub(super) fn waits_no_more(&mut self, ticket: Ticket) {
        self.waiting.leave(ticket);
    }

    /// Somebody waits no more at `now`, because a pool has handed on a socket to its request.
    pub(super) fn was_served(&mut self, ticket: Ticket, now: Instant) {
        self.waiting.leave_served(ticket, now);
    }

    /// There is a socket now.
    pub(super) fn opened(&mut self, usage: Arc<Usage>) -> SocketKey {
        let socket = Place::Open(Socket {
            usage,
            state: State::Busy,
            tried: false,
            condemned: false,
        });
        if let Some(key) = self.vacant.pop()
            && let Some(place) = self.places.get_mut(key)
        {
            *place = socket;
            return SocketKey(key);
        }
        self.places.push(socket);
        SocketKey(self.places.len().saturating_sub(1))
    }

    /// Looks at what the socket is used for at `now`.
    pub(super) fn settle(&mut self, key: SocketKey, now: Instant) -> Vec<Arc<Usage>> {
        let Some(socket) = self.socket(key) else {
            return Vec::new();
        };
        let condemned = socket.condemned;
        let (was, (rest, asked)) = (socket.state, socket.usage.rest());
        let state = match (was, rest) {
            (State::Leaving, Some(_)) if asked => return Vec::new(),
            (State::Idle { rest: known, .. }, Some(rest)) if known == rest => return Vec::new(),
            (_, None) => State::Busy,
            (_, Some(rest)) => State::Idle {
                rest,
                from: now.checked_add(rest.grace()).unwrap_or(now),
            },
        };
        self.set_state(key, state);
        // A new one is its own request's.
        let was_free = matches!(
            was,
            State::Leaving
                | State::Idle {
                    rest: Rest::Free,
                    ..
                }
        );
        if state == State::Busy && was_free {
            self.waiting.hand_on(now);
        }
        let mut leaving = Vec::new();
        if let Some(Rest::Free) = rest {
            self.refusals.answered();
            // It may be the one that was refused, or one too many by what was learnt from that.
            if condemned || self.silent_until(now).is_some() || self.is_over(now) {
                leaving.extend(self.ask(key));
            }
        }
        self.ask_for_room(now, &mut leaving);
        leaving
    }

    /// A socket that was about to be free was given to another request at `now`.
    pub(super) fn handed_on(&mut self, now: Instant) -> Vec<Arc<Usage>> {
        self.waiting.hand_on(now);
        self.refusals.answered();
        Vec::new()
    }

    /// The service has accepted the socket's first request.
    pub(super) fn accepted(&mut self, key: SocketKey) {
        if let Some(socket) = self.socket_mut(key)
            && !mem::replace(&mut socket.tried, true)
        {
            self.untried = self.untried.saturating_sub(1);
        }
    }

    /// The socket has had a 416: what it is about, whoever reads it will say.
    pub(super) fn maybe_refused(&mut self, key: SocketKey, had_worked: bool) {
        let evidence = if had_worked {
            Evidence::Weak
        } else {
            Evidence::Strong
        };
        self.maybe_refused = Some((key, evidence));
    }

    /// The service has too many connections at `now`, as a request was told. Gives who is to leave, and
    /// whether there is a silence.
    pub(super) fn refused(&mut self, now: Instant) -> (Vec<Arc<Usage>>, bool) {
        let (key, evidence) = match self.maybe_refused.take() {
            // While one is tried at a time, that one may be what makes all of them too many.
            Some((key, _)) if self.refusals.is_suspect(now) && self.untried > 0 => {
                (Some(key), Evidence::Strong)
            }
            Some((key, evidence)) => (Some(key), evidence),
            None => (None, Evidence::Strong),
        };
        if let Some(socket) = key.and_then(|key| self.socket_mut(key)) {
            socket.condemned = true;
        }
        let (open, most) = (self.open, self.most);
        let news = self.refusals.refused(now, evidence, open, most);
        let silent = self.silent_until(now).is_some();
        if !news {
            return (Vec::new(), silent);
        }
        let unused = |from| now.saturating_duration_since(from) >= UNUSED;
        let leaving = self.free.iter().filter(|(from, _)| silent || unused(*from));
        let leaving: Vec<_> = leaving.map(|(_, key)| SocketKey(*key)).collect();
        let leaving = leaving.into_iter().filter_map(|key| self.ask(key));
        (leaving.collect(), silent)
    }

    /// The socket has ended on this side at `now`.
    pub(super) fn ended(&mut self, key: SocketKey, now: Instant) {
        self.set_state(key, State::Busy);
        let until = now.checked_add(EXPECTED).unwrap_or(now);
        let Some(place) = self.places.get_mut(key.0) else {
            return;
        };
        if let Place::Open(Socket { tried: false, .. }) =
            mem::replace(place, Place::Ending { until })
        {
            self.untried = self.untried.saturating_sub(1);
        }
        self.ending.insert((until, key.0));
    }

    /// The socket has ended on both sides.
    pub(super) fn closed(&mut self, key: SocketKey) {
        if let Some(place) = self.places.get_mut(key.0)
            && let Place::Ending { until } = mem::replace(place, Place::Vacant)
        {
            self.ending.remove(&(until, key.0));
            self.vacant.push(key.0);
            self.open = self.open.saturating_sub(1);
        }
    }

    /// Asks as many sockets to leave as it takes to let those through who wait.
    pub(super) fn looked(&mut self, now: Instant) -> Vec<Arc<Usage>> {
        let mut asked = Vec::new();
        self.ask_for_room(now, &mut asked);
        asked
    }

    fn ask_for_room(&mut self, now: Instant, asked: &mut Vec<Arc<Usage>>) {
        let waiting = self.waiting.len();
        if waiting == 0 {
            return;
        }
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let short = size(self.open)
            .saturating_add(waiting)
            .saturating_sub(size(self.most_at(now)))
            .min(waiting);
        while self.coming(now) < short
            && let Some(key) = self.next_to_leave(now)
        {
            asked.extend(self.ask(key));
        }
    }

    /// Whether more are open than may be at `now`, those aside that are about to be gone.
    fn is_over(&mut self, now: Instant) -> bool {
        let gone = u32::try_from(self.coming(now)).unwrap_or(u32::MAX);
        self.open.saturating_sub(gone) > self.most_at(now)
    }

    /// How many are taken at `now` to be about to be gone.
    fn coming(&mut self, now: Instant) -> usize {
        while let Some(late) = self.ending.first().copied()
            && late.0 <= now
        {
            self.ending.remove(&late);
        }
        self.leaving.saturating_add(self.ending.len())
    }

    /// The socket that has been idle for longest, if that is long enough at `now`.
    fn next_to_leave(&mut self, now: Instant) -> Option<SocketKey> {
        let passed_over = self.waiting.is_passed_over(now) && self.coming(now) == 0;
        let (free, doubtful) = (self.free.first(), self.doubtful.first());
        let longest = free.into_iter().chain(doubtful).min();
        let long_enough = longest.filter(|(from, _)| *from <= now);
        let next = long_enough.or(free.filter(|_| passed_over));
        next.map(|(_, key)| SocketKey(*key))
    }

    /// Asks the socket to leave, unless a request has come first.
    fn ask(&mut self, key: SocketKey) -> Option<Arc<Usage>> {
        let usage = Arc::clone(&self.socket(key)?.usage);
        let asked = usage.ask();
        self.set_state(key, if asked { State::Leaving } else { State::Busy });
        asked.then_some(usage)
    }

    fn set_state(&mut self, key: SocketKey, state: State) {
        let Some(socket) = self.socket_mut(key) else {
            return;
        };
        match mem::replace(&mut socket.state, state) {
            State::Busy => {}
            State::Idle { rest, from } => drop(self.idle(rest).remove(&(from, key.0))),
            State::Leaving => self.leaving = self.leaving.saturating_sub(1),
        }
        match state {
            State::Busy => {}
            State::Idle { rest, from } => drop(self.idle(rest).insert((from, key.0))),
            State::Leaving => self.leaving = self.leaving.saturating_add(1),
        }
    }

    fn idle(&mut self, rest: Rest) -> &mut BTreeSet<(Instant, usize)> {
        match rest {
            Rest::Free => &mut self.free,
            Rest::Doubtful => &mut self.doubtful,
        }
    }

    fn socket(&self, key: SocketKey) -> Option<&Socket> {
        match self.places.get(key.0)? {
            Place::Open(socket) => Some(socket),
            Place::Vacant | Place::Ending { .. } => None,
        }
    }

    fn socket_mut(&mut self, key: SocketKey) -> Option<&mut Socket> {
        match self.places.get_mut(key.0)? {
            Place::Open(socket) => Some(socket),
            Place::Vacant | Place::Ending { .. } => None,
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
        let after = |idle: &BTreeSet<(Instant, usize)>| {
            let next = idle.range((now, usize::MAX)..).next();
            next.map(|(at, _)| *at).filter(|at| *at > now)
        };
        let times = [
            self.refusals.lowered_until(now),
            after(&self.free),
            after(&self.doubtful),
            after(&self.ending),
            self.waiting.passed_over_from(now),
        ];
        match times.into_iter().flatten().min() {
            Some(at) => Opens::At(at),
            None => Opens::OnReturn,
        }
    }

    fn admit(&mut self, now: Instant) {
        self.open = self.open.saturating_add(1);
        self.untried = self.untried.saturating_add(1);
        self.refusals.connects(now);
    }

    fn admit_undated(&mut self, _line: Line) -> Option<()> {
        let room = self.open < self.most && !self.refusals.any();
        room.then(|| {
            self.open = self.open.saturating_add(1);
            self.untried = self.untried.saturating_add(1);
        })
    }

    fn make_room(&mut self, _waiting: usize, now: Instant) -> Vec<Waker> {
        let asked = self.looked(now);
        asked
            .iter()
            .filter_map(|usage| usage.take_reader())
            .collect()
    }

    /// The permit of a connect that came to nothing.
    fn withdraw(&mut self, (): ()) {
        self.open = self.open.saturating_sub(1);
        self.untried = self.untried.saturating_sub(1);
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

/// For how long a server's own end is awaited before another idle socket is closed for whoever
/// waits: most of the 100 ms in which its request shall go on. A server that has died would keep it
/// waiting for 30 s; one that is merely slow costs sockets that nobody uses.
const EXPECTED: Duration = Duration::from_millis(80);

#[cfg(test)]
mod tests;
