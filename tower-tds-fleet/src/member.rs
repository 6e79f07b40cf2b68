//! The state of one member: who waits, what it has to tell, which leases it keeps. Arithmetic
//! on `now`, no clock, no socket.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    num::NonZeroU32,
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
    /// When the store was last asked with success.
    heard: Option<Instant>,
    /// The last question, and the last that was answered.
    asked: u64,
    answered: u64,
    /// Who answered it; 0: nobody yet.
    server: i64,
    /// There if it goes on without the store.
    alone: Option<Alone>,
}

/// How long leases live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    /// From the moment the store is asked for one, or to keep one.
    pub(crate) lease: Duration,
    /// What was sent may be counted for so long after it was ended here.
    pub(crate) lost: Duration,
}

/// A share of the quota that is kept without the store: one request at a time, evenly spaced. So the
/// estimate of a weighing counter is at most the share, too, and a bucket sees one more at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) requests: NonZeroU32,
    /// From one proof to the next request.
    spacing: Duration,
    /// What was proven so long ago nobody asks for.
    forgotten: Duration,
    /// It begins so long after the store was last heard...
    begins: Duration,
    /// ...and ends.
    ends: Duration,
}

/// How the share is used.
#[derive(Debug)]
struct Alone {
    share: Share,
    /// Whether the store is there again, and what was done without it is waited for.
    returning: bool,
    /// Whether the store has agreed to it.
    agreed: bool,
    /// The request under way.
    open: Option<Open>,
    /// Of requests, below 0, where the store's are above.
    number: Id,
    /// Before this there is no other.
    next: Instant,
    /// Before this the store is not asked, since it has not heard of these.
    quiet: Option<Instant>,
}

/// A request of the share.
#[derive(Debug)]
struct Open {
    id: Id,
    /// Until then it has to be used, or to be over.
    until: Instant,
    is_used: bool,
    /// Kept for its drop.
    _over: oneshot::Sender<Infallible>,
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
    /// With the time that the service told.
    QuotaExceeded(Option<Duration>),
    Nothing,
}

/// One round trip's worth.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Each has one more, so that the store knows which of its answers were lost.
    pub(crate) number: u64,
    /// The last that was answered.
    pub(crate) answered: u64,
    /// Who answered it; 0: nobody yet.
    pub(crate) server: i64,
    pub(crate) want: usize,
    /// What this member would use without the store; -1 of one that leaves.
    pub(crate) share: i64,
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
    /// For how long the service has said that the quota is used up.
    pub(crate) paused: Duration,
    /// Whether the share is this member's.
    pub(crate) agreed: bool,
    /// The server process that has answered.
    pub(crate) server: i64,
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
    /// With a share, if it is to go on without the store.
    pub(crate) fn new(term: Term, share: Option<Share>, now: Instant) -> Self {
        Self {
            alone: share.map(|share| Alone {
                share,
                returning: false,
                agreed: false,
                open: None,
                number: 0,
                next: now,
                quiet: None,
            }),
            heard: None,
            asked: 0,
            answered: 0,
            server: 0,
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

    /// Whether it holds nothing, has nothing to tell, and has done nothing without the store that counts yet.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        self.expire(now);
        let alone = self.alone.as_mut().and_then(|alone| alone.quiet_at(now));
        self.held.is_empty() && self.told.is_empty() && alone.is_none()
    }

    /// Somebody waits, before all others if it is the first in line.
    pub(crate) fn wait(&mut self, waiter: W, first_in_line: bool, at_once: bool) {
        if at_once {
            self.ask_at = None;
        }
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
    pub(crate) fn ended(&mut self, event: Event, now: Instant) {
        if event.id() >= 0 {
            self.held.remove(&event.id());
            self.told.push(event);
        } else if let Some(alone) = &mut self.alone {
            // Unless it was over already.
            if alone.open.take_if(|open| open.id == event.id()).is_some() {
                alone.ended(event, now);
            }
        }
    }

    /// A lease was let go without a word: what it was for may be counted yet.
    pub(crate) fn forget(&mut self, id: Id, now: Instant) {
        self.ended(Event::Within(id, self.term.lost), now);
    }

    /// What the store is told that this member would use without it.
    pub(crate) fn share(&self) -> i64 {
        self.alone
            .as_ref()
            .map_or(0, |alone| alone.share.requests.get().into())
    }

    /// Whether the store has agreed to that.
    pub(crate) fn has_share(&self) -> bool {
        self.alone.as_ref().is_some_and(|alone| alone.agreed)
    }

    /// What it says when it leaves, if it has to.
    pub(crate) fn goodbye(&mut self) -> Option<Ask> {
        self.alone.as_ref()?;
        Some(Ask {
            share: -1,
            ..self.question(0, Vec::new())
        })
    }

    /// With all that is to be told.
    fn question(&mut self, want: usize, kept: Vec<Id>) -> Ask {
        self.asked = self.asked.saturating_add(1);
        Ask {
            number: self.asked,
            answered: self.answered,
            server: self.server,
            want,
            share: self.share(),
            events: std::mem::take(&mut self.told),
            kept,
        }
    }

    /// The store is there, or is not any more.
    pub(crate) fn is_there(&mut self, there: bool) {
        if let Some(alone) = &mut self.alone {
            alone.returning = there;
        }
    }

    /// When the share has room for one who waits, while the store is away.
    pub(crate) fn alone_at(&mut self, now: Instant) -> Option<Instant> {
        self.expire(now);
        let alone = self.alone.as_mut().filter(|_| !self.waiting.is_empty())?;
        alone.opens_at(self.heard?, now)
    }

    /// A place in the share, if there is one at `now`.
    pub(crate) fn grant_alone(&mut self, now: Instant) -> Option<Granted> {
        self.alone_at(now).filter(|at| *at <= now)?;
        let alone = self.alone.as_mut()?;
        alone.number = alone.number.saturating_sub(1);
        let (sender, over) = oneshot::channel();
        let until = now.checked_add(USED_BY).unwrap_or(now);
        alone.open = Some(Open {
            id: alone.number,
            until,
            is_used: false,
            _over: sender,
        });
        Some(Granted {
            id: alone.number,
            until,
            over,
        })
    }

    /// What is to be done at `now`.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        // This process may have been stopped since it last looked.
        self.expire(now);
        if let Some(quiet) = self.alone.as_mut().and_then(|alone| alone.quiet_at(now)) {
            return Next::Wait(Some(quiet));
        }
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
        let beat = self.alone.as_ref().map_or(IDLE, |_| due);
        let heard = self.heard.and_then(|at| at.checked_add(beat));
        let heartbeat = Some(heard.unwrap_or(now));
        let beats = heartbeat.is_some_and(|at| at <= now);
        if wants || leaves || beats || !kept.is_empty() || !self.told.is_empty() {
            return Next::Ask(self.question(self.waiting.len(), kept));
        }
        // Of those too that nobody uses yet: whether they are used by then is seen then.
        let dues = self
            .held
            .values()
            .filter_map(|held| held.since.checked_add(due));
        let renewal = dues.filter(|at| *at > now).min();
        let asks = self.ask_at.filter(|_| !self.waiting.is_empty());
        Next::Wait(renewal.into_iter().chain(asks).chain(heartbeat).min())
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
        self.heard = Some(sent);
        (self.answered, self.server) = (ask.number, reply.server);
        if let Some(alone) = &mut self.alone {
            alone.agreed = reply.agreed;
            alone.next = alone
                .next
                .max(now.checked_add(reply.paused.min(A_MINUTE)).unwrap_or(now));
        }
        for id in &ask.kept {
            if let Some(held) = self.held.get_mut(id) {
                // What the store does not know is ended when it would have been.
                held.renewed = !reply.unknown.contains(id);
                held.since = if held.renewed { sent } else { held.since };
            }
        }
        self.queued = reply.granted.len() < ask.want;
        self.ask_at = self.queued.then(|| {
            // The store tells it, or it does not; in a pause there is nothing to be told.
            let most = if reply.paused.is_zero() {
                HEARTBEAT
            } else {
                A_MINUTE
            };
            let wait = reply.wait.unwrap_or(HEARTBEAT).min(most);
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
                    renewed: false,
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
        // A message may be older than an answer that says better.
        if self.queued {
            self.ask_at = Some(self.ask_at.map_or(at, |known| known.min(at)));
        }
    }

    /// Nobody keeps its leases any more. Gives those who wait.
    pub(crate) fn end(&mut self) -> VecDeque<W> {
        self.held.clear();
        std::mem::take(&mut self.waiting)
    }

    /// A lease is used from now on, and kept. What nobody uses ends by itself: nothing is said of what has.
    /// Otherwise whether it is to be renewed already.
    pub(crate) fn used(&mut self, id: Id, now: Instant) -> Option<bool> {
        if id < 0 {
            let open = self.alone.as_mut().and_then(|alone| alone.open.as_mut());
            let open = open.filter(|open| open.id == id)?;
            (open.is_used, open.until) = (true, self.term.until(now));
            return Some(false);
        }
        let due = self.term.renewed_after();
        let held = self.held.get_mut(&id)?;
        held.renewed = true;
        Some(now.saturating_duration_since(held.since) >= due)
    }

    /// When the next lease is over that cannot be kept.
    pub(crate) fn over_at(&self) -> Option<Instant> {
        let held = self.held.values().map(|held| self.until(held.since));
        let alone = self.alone.as_ref().and_then(|alone| alone.open.as_ref());
        held.chain(alone.map(|open| open.until)).min()
    }

    /// Whether that lease is kept, and not over.
    pub(crate) fn holds(&self, id: Id, now: Instant) -> bool {
        let until = if id < 0 {
            let open = self.alone.as_ref().and_then(|alone| alone.open.as_ref());
            open.filter(|open| open.id == id).map(|open| open.until)
        } else {
            self.held.get(&id).map(|held| self.until(held.since))
        };
        until.is_some_and(|until| until > now)
    }

    /// What could not be kept is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        let term = self.term;
        self.held.retain(|_, held| term.until(held.since) > now);
        if let Some(alone) = &mut self.alone
            && let Some(open) = alone.open.take_if(|open| open.until <= now)
        {
            let event = if open.is_used {
                Event::Within(open.id, term.lost)
            } else {
                Event::Unsent(open.id)
            };
            alone.ended(event, now);
        }
    }

    fn until(&self, since: Instant) -> Instant {
        self.term.until(since)
    }
}

// === impl Share ===

impl Share {
    /// Of a quota whose proofs count for `hold`, in a fleet whose leases are over after `recovery`.
    pub(crate) fn new(requests: NonZeroU32, hold: Duration, recovery: Duration) -> Self {
        let twice = hold.saturating_mul(2);
        // Of requests that are spaced by d, a weighing counter sees up to hold / d + 2; of few, none
        // sees more than come in two of its windows.
        let spacing = match requests.get().checked_sub(2).filter(|spaced| *spaced >= 2) {
            Some(spaced) => hold.checked_div(spaced),
            None => twice.checked_div(requests.get()),
        };
        Self {
            requests,
            spacing: spacing.unwrap_or(twice),
            forgotten: twice,
            begins: recovery,
            ends: LASTS,
        }
    }
}

// === impl Alone ===

impl Alone {
    fn opens_at(&self, heard: Instant, now: Instant) -> Option<Instant> {
        if self.returning || !self.agreed {
            return None;
        }
        if let Some(open) = &self.open {
            return Some(open.until);
        }
        let at = heard.checked_add(self.share.begins)?.max(self.next);
        (at.max(now) < heard.checked_add(self.share.ends)?).then_some(at)
    }

    fn ended(&mut self, event: Event, now: Instant) {
        let later = |span: Duration| now.checked_add(span).unwrap_or(now);
        let (proven, pause) = match event {
            Event::Unsent(_) => return,
            Event::Within(_, within) => (later(within), Duration::ZERO),
            Event::Proven(_, Heard::Refused) => (now, self.share.forgotten),
            Event::Proven(_, Heard::QuotaExceeded(hint)) => {
                (now, hint.unwrap_or(self.share.forgotten))
            }
            Event::Proven(_, Heard::Accepted | Heard::Nothing) => (now, Duration::ZERO),
        };
        let after = |span| proven.checked_add(span).unwrap_or(proven);
        self.next = after(self.share.spacing.max(pause));
        self.quiet = Some(after(self.share.forgotten));
    }

    /// Until when the store is not asked, if it is not.
    fn quiet_at(&mut self, now: Instant) -> Option<Instant> {
        self.quiet = self.quiet.filter(|at| *at > now);
        self.open.as_ref().map(|open| open.until).or(self.quiet)
    }
}

// === impl Term ===

impl Term {
    fn renewed_after(self) -> Duration {
        let used = self.lease.saturating_sub(self.lost);
        used.checked_div(RENEWALS).unwrap_or_default()
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

/// A share is good for so long after the store was last heard, and the store withholds it for a little
/// longer.
const LASTS: Duration = Duration::from_secs(600);

/// Times in the use of a lease that it is renewed: three of these may fail.
const RENEWALS: u32 = 4;

/// A place in a share that is not used by then goes to another.
const USED_BY: Duration = Duration::from_millis(100);

/// The longest that a 429 is waited for until one tries.
const A_MINUTE: Duration = Duration::from_secs(60);

/// A member without a share is heard of as often, so that its connection is known to be good.
const IDLE: Duration = Duration::from_secs(30);

/// A member that waits asks at least as often, in case that it was not told.
const HEARTBEAT: Duration = Duration::from_secs(1);

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]
// Named, since the simulation takes this file as it is.
#[path = "member/tests.rs"]
mod tests;
