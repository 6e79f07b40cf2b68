//! Which of the open sockets could be closed without anybody's missing them, and which are about
//! to be gone.

use std::{mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::exit::Exit;

/// The sockets until their close, each with what the limit may do with it.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// By key.
    all: Vec<Place>,
    /// Those asked to leave that have not left yet.
    leaving: usize,
}

/// One socket's number, good until it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketKey(usize);

/// How sure it is that nobody misses a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Each of its requests has been sent, and answered, whole.
    Free,
    /// A request may be about to go out, or an upload may go on although it has been answered.
    Doubtful,
}

#[derive(Debug)]
enum Place {
    /// A key to be used again.
    // ## Vacant => Open
    Vacant,
    // ## Open => (Closing | Vacant)
    Open(Socket),
    /// Ended on this side. Until then the other is taken to be about to follow.
    // ## Closing => Vacant
    Closing {
        expected_until: Instant,
    },
}

#[derive(Debug)]
struct Socket {
    state: State,
    exit: Arc<Exit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Carries a request, or nobody knows what.
    // ## Working => Resting
    Working,
    /// May be asked to leave: from then on if somebody waits, and at once if the service asks.
    // ## Resting => (Working | Leaving)
    Resting { rest: Rest, from: Instant },
    /// Asked to leave. A request that comes first takes that back.
    // ## Leaving => Working
    Leaving,
}

// === impl Sockets ===

impl Sockets {
    pub(super) fn add(&mut self, exit: Arc<Exit>) -> SocketKey {
        let socket = Place::Open(Socket {
            state: State::Working,
            exit,
        });
        let mut places = self.all.iter_mut().enumerate();
        if let Some((key, place)) = places.find(|(_, place)| matches!(place, Place::Vacant)) {
            *place = socket;
            return SocketKey(key);
        }
        self.all.push(socket);
        SocketKey(self.all.len().saturating_sub(1))
    }

    /// The socket has ended on this side at `now`.
    pub(super) fn ended(&mut self, key: SocketKey, now: Instant) {
        let expected_until = now.checked_add(EXPECTED).unwrap_or(now);
        self.replace(key, Place::Closing { expected_until });
    }

    /// The socket is gone.
    pub(super) fn remove(&mut self, key: SocketKey) {
        self.replace(key, Place::Vacant);
    }

    fn replace(&mut self, key: SocketKey, with: Place) {
        let Some(place) = self.all.get_mut(key.0) else {
            return;
        };
        let before = mem::replace(place, with);
        if before.socket().is_some_and(Socket::is_leaving) {
            self.leaving = self.leaving.saturating_sub(1);
        }
    }

    /// The socket carries nothing at `now`.
    pub(super) fn rest(&mut self, key: SocketKey, rest: Rest, now: Instant) {
        if let Some(socket) = self.get_mut(key)
            && socket.state != State::Leaving
        {
            let from = now.checked_add(rest.grace()).unwrap_or(now);
            socket.state = State::Resting { rest, from };
        }
    }

    /// The socket carries a request again. Says whether it had been asked to leave.
    pub(super) fn work(&mut self, key: SocketKey) -> bool {
        let Some(socket) = self.get_mut(key) else {
            return false;
        };
        socket.state = State::Working;
        let was_asked = socket.exit.take_back();
        if was_asked {
            self.leaving = self.leaving.saturating_sub(1);
        }
        was_asked
    }

    pub(super) fn leaving(&self) -> usize {
        self.leaving
    }

    /// How many are taken at `now` to be about to be gone.
    pub(super) fn expected(&self, now: Instant) -> usize {
        let closing = self.all.iter().filter_map(Place::expected_until);
        let expected = closing.filter(|until| *until > now).count();
        self.leaving().saturating_add(expected)
    }

    /// After `now`, when the next socket can be asked to leave, or another one has to be because
    /// a server takes its time.
    pub(super) fn next_after(&self, now: Instant) -> Option<Instant> {
        let sockets = self.all.iter().filter_map(Place::socket);
        let resting = sockets.filter_map(Socket::resting_from);
        let closing = self.all.iter().filter_map(Place::expected_until);
        resting.chain(closing).filter(|at| *at > now).min()
    }

    /// Asks the socket to leave that has rested for longest; its reader has yet to be woken.
    pub(super) fn ask_one(&mut self, now: Instant) -> Option<Arc<Exit>> {
        let longest = self
            .sockets_mut()
            .filter_map(|socket| Some((socket.resting_from()?, socket)))
            .filter(|(from, _)| *from <= now)
            .min_by_key(|(from, _)| *from);
        let (_, socket) = longest?;
        let asked = socket.ask();
        self.leaving = self.leaving.saturating_add(1);
        Some(asked)
    }

    /// Asks every free socket to leave; their readers have yet to be woken.
    pub(super) fn ask_free(&mut self) -> Vec<Arc<Exit>> {
        let free = self.sockets_mut().filter(|socket| socket.is_free());
        let asked: Vec<_> = free.map(Socket::ask).collect();
        self.leaving = self.leaving.saturating_add(asked.len());
        asked
    }

    fn get_mut(&mut self, key: SocketKey) -> Option<&mut Socket> {
        self.all.get_mut(key.0).and_then(Place::socket_mut)
    }

    fn sockets_mut(&mut self) -> impl Iterator<Item = &mut Socket> {
        self.all.iter_mut().filter_map(Place::socket_mut)
    }
}

// === impl Place ===

impl Place {
    fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Open(socket) => Some(socket),
            Self::Vacant | Self::Closing { .. } => None,
        }
    }

    fn socket_mut(&mut self) -> Option<&mut Socket> {
        match self {
            Self::Open(socket) => Some(socket),
            Self::Vacant | Self::Closing { .. } => None,
        }
    }

    fn expected_until(&self) -> Option<Instant> {
        match self {
            Self::Closing { expected_until } => Some(*expected_until),
            Self::Vacant | Self::Open(_) => None,
        }
    }
}

// === impl Socket ===

impl Socket {
    fn resting_from(&self) -> Option<Instant> {
        match self.state {
            State::Resting { from, .. } => Some(from),
            State::Working | State::Leaving => None,
        }
    }

    fn is_leaving(&self) -> bool {
        self.state == State::Leaving
    }

    fn is_free(&self) -> bool {
        matches!(
            self.state,
            State::Resting {
                rest: Rest::Free,
                ..
            }
        )
    }

    fn ask(&mut self) -> Arc<Exit> {
        self.state = State::Leaving;
        self.exit.ask();
        Arc::clone(&self.exit)
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

/// A pool hands a free connection to a waiting request at once, so one that is free for so long
/// is not wanted. Short against the 100 ms in which a request to another host shall go on.
const HANDED_ON: Duration = Duration::from_millis(20);

/// For how long an upload that was answered early may move no byte, and a new connection carry
/// none: nginx waits as long for an answered client's next byte (`lingering_timeout`, 5 s).
const STALLED: Duration = Duration::from_secs(5);

/// For how long a server's own end is awaited before another idle socket is closed for whoever
/// waits: most of the 100 ms in which its request shall go on. A server that has died would keep it
/// waiting for 30 s; one that is merely slow costs sockets that nobody uses.
const EXPECTED: Duration = Duration::from_millis(80);
