//! What one process knows of the fleet: who waits, what it has to tell, which leases it keeps. Arithmetic
//! on `now`, no clock, no socket.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

/// A number that the store gives, never twice.
pub(crate) type Id = i64;

/// One process, as the store sees it.
///
/// `W` is who waits for a lease.
#[derive(Debug)]
pub(crate) struct Member<W> {
    term: Term,
    waiting: VecDeque<W>,
    told: Vec<Event>,
    held: HashMap<Id, Held>,
    /// When to ask again, if the store has said that or is thought to.
    ask_at: Option<Instant>,
    /// Whether it stands in the store's queue.
    queued: bool,
}

/// How long leases live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    /// From the moment the store is asked for one, or to keep one.
    pub(crate) lease: Duration,
    /// What was sent may be counted for so long after it was ended here.
    pub(crate) lost: Duration,
}

/// What the store is told about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Proven(Id, Heard),
    Within(Id, Duration),
    Unsent(Id),
}

/// What an answer says about the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Accepted,
    Refused,
    QuotaExceeded(Duration),
    Nothing,
}

/// One round trip's worth.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) want: usize,
    pub(crate) events: Vec<Event>,
    pub(crate) kept: Vec<Id>,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Ask(Ask),
    /// Nothing before this, unless something happens.
    Wait(Option<Instant>),
}

/// What the store has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) granted: Vec<Id>,
    /// When to ask again; `None` where the store tells it.
    pub(crate) wait: Option<Duration>,
    /// What is kept no more.
    pub(crate) unknown: Vec<Id>,
}

/// A lease that has just been granted.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) id: Id,
    /// What is sent later than this may be counted after the lease is over.
    pub(crate) until: Instant,
    /// Closed when it could not be kept.
    pub(crate) over: oneshot::Receiver<Infallible>,
}

#[derive(Debug)]
struct Held {
    /// When the store was last asked for it, or to keep it, and did.
    since: Instant,
    renewed: bool,
    /// Kept for its drop.
    _over: oneshot::Sender<Infallible>,
}

// === impl Member ===

impl<W> Member<W> {
    pub(crate) fn new(term: Term) -> Self {
        Self {
            term,
            waiting: VecDeque::new(),
            told: Vec::new(),
            held: HashMap::new(),
            ask_at: None,
            queued: false,
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds nothing, and has nothing to tell.
    pub(crate) fn is_told(&self) -> bool {
        self.held.is_empty() && self.told.is_empty()
    }

    /// Somebody waits, before all others if it is the first in line.
    pub(crate) fn wait(&mut self, waiter: W, first_in_line: bool) {
        if first_in_line {
            self.waiting.push_front(waiter);
        } else {
            self.waiting.push_back(waiter);
        }
    }

    /// Who waits next.
    pub(crate) fn next_waiting(&mut self) -> Option<W> {
        self.waiting.pop_front()
    }

    /// Those of who waits for whom this is so.
    pub(crate) fn take_waiting(&mut self, whose: impl FnMut(&W) -> bool) -> VecDeque<W> {
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (taken, left) = all.partition(whose);
        self.waiting = left;
        taken
    }

    /// A lease has ended.
    pub(crate) fn ended(&mut self, event: Event) {
        self.held.remove(&event.id());
        self.told.push(event);
    }

    /// A lease was let go without a word: it ends by itself.
    pub(crate) fn forget(&mut self, id: Id) {
        self.held.remove(&id);
    }

    /// What is to be done at `now`.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        let due = self.term.renewed_after();
        let is_due = |held: &Held| held.renewed && now.saturating_duration_since(held.since) >= due;
        let kept: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| is_due(held))
            .map(|(id, _)| *id)
            .collect();
        let wants = !self.waiting.is_empty() && self.ask_at.is_none_or(|at| at <= now);
        let leaves = self.waiting.is_empty() && self.queued;
        if wants || leaves || !kept.is_empty() || !self.told.is_empty() {
            return Next::Ask(Ask {
                want: self.waiting.len(),
                events: std::mem::take(&mut self.told),
                kept,
            });
        }
        let renewal = self
            .held
            .values()
            .filter(|held| held.renewed)
            .filter_map(|held| held.since.checked_add(due))
            .min();
        let asks = self.ask_at.filter(|_| !self.waiting.is_empty());
        Next::Wait(renewal.into_iter().chain(asks).min())
    }

    /// The store has answered what it was asked at `sent`. Gives the leases, in the order of those who
    /// wait.
    pub(crate) fn answered(
        &mut self,
        ask: &Ask,
        reply: Reply,
        sent: Instant,
        now: Instant,
    ) -> Vec<Granted> {
        for id in &ask.kept {
            if let Some(held) = self.held.get_mut(id) {
                held.since = sent;
            }
        }
        for id in &reply.unknown {
            // Whatever is under way is ended in time.
            if let Some(held) = self.held.get_mut(id) {
                held.renewed = false;
            }
        }
        self.queued = reply.granted.len() < ask.want;
        self.ask_at = self.queued.then(|| {
            // The store tells it, or it does not.
            let wait = reply.wait.unwrap_or(HEARTBEAT).min(HEARTBEAT);
            now.checked_add(wait).unwrap_or(now)
        });
        let until = self.until(sent);
        reply
            .granted
            .into_iter()
            .map(|id| {
                let (sender, over) = oneshot::channel();
                let held = Held {
                    since: sent,
                    renewed: true,
                    _over: sender,
                };
                self.held.insert(id, held);
                Granted { id, until, over }
            })
            .collect()
    }

    /// Nobody knows whether the store has heard this: it is told again, and asked anew.
    pub(crate) fn unanswered(&mut self, ask: Ask) {
        let later = std::mem::replace(&mut self.told, ask.events);
        self.told.extend(later);
        self.queued = false;
        self.ask_at = None;
    }

    /// The store says when to ask.
    pub(crate) fn told(&mut self, at: Instant) {
        if self.queued {
            self.ask_at = Some(at);
        }
    }

    /// When the next lease is over that cannot be kept.
    pub(crate) fn over_at(&self) -> Option<Instant> {
        self.held.values().map(|held| self.until(held.since)).min()
    }

    /// What could not be kept is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        let term = self.term;
        self.held.retain(|_, held| term.until(held.since) > now);
    }

    fn until(&self, since: Instant) -> Instant {
        self.term.until(since)
    }
}

// === impl Term ===

impl Term {
    fn renewed_after(self) -> Duration {
        self.lease.checked_div(RENEWALS).unwrap_or_default()
    }

    fn until(self, since: Instant) -> Instant {
        let used = self.lease.saturating_sub(self.lost);
        since.checked_add(used).unwrap_or(since)
    }
}

// === impl Event ===

impl Event {
    fn id(self) -> Id {
        match self {
            Self::Proven(id, _) | Self::Within(id, _) | Self::Unsent(id) => id,
        }
    }
}

/// Times in its life that a lease is renewed: four of these may fail.
const RENEWALS: u32 = 8;

/// A member that waits asks at least as often, in case that it was not told.
const HEARTBEAT: Duration = Duration::from_secs(1);
