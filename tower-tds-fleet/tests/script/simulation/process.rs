//! One process of the fleet: its member, and what the thread of a member does.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    time::Duration,
};

use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::Instant,
};

use super::event::Question;
use crate::{
    member::{Ask, Event, Granted, Heard, Id, Member, Next, Reply, Share, Term},
    store::Told,
};

/// A process, on the clock of the simulation.
pub(super) struct Process {
    base: Instant,
    member: Member<Duration>,
    /// Which of its connections this is, and since when it is open.
    pub(super) connection: u32,
    pub(super) connected: Duration,
    /// Until then nothing of it arrives at the store.
    pub(super) cut: Duration,
    /// Which store it asks.
    pub(super) store: usize,
    asking: Option<(Ask, Duration)>,
    /// Said by the store and not looked at.
    pushes: VecDeque<Duration>,
    /// When the last answer of the store arrives: nothing overtakes on a connection.
    pub(super) delivered: Duration,
    calls: HashMap<Id, oneshot::Receiver<Infallible>>,
    /// So many always wait.
    pub(super) backlog: usize,
    /// The process does nothing until then.
    pub(super) stopped: Duration,
    /// It is to be stopped for so long between its next lease and what it sends with it.
    pub(super) stops_before_send: Option<Duration>,
    pub(super) dead: bool,
    /// When it will look by itself.
    pub(super) wakes: Option<Duration>,
    pub(super) seen: Seen,
}

/// What it has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) first: Option<Duration>,
    pub(super) sent: u64,
    /// Without the store.
    pub(super) alone: u64,
    pub(super) waits: Vec<Duration>,
    pub(super) aborted: u64,
}

// === impl Process ===

impl Process {
    pub(super) fn new(base: Instant, backlog: usize) -> Self {
        Self {
            base,
            member: Member::new(TERM, None, base),
            connection: 0,
            connected: Duration::ZERO,
            cut: Duration::ZERO,
            store: 0,
            asking: None,
            pushes: VecDeque::new(),
            delivered: Duration::ZERO,
            calls: HashMap::new(),
            backlog,
            stopped: Duration::ZERO,
            stops_before_send: None,
            dead: false,
            wakes: None,
            seen: Seen::default(),
        }
    }

    /// One that goes on without the store, by this share.
    pub(super) fn sharing(base: Instant, backlog: usize, share: Share) -> Self {
        let member = Member::new(TERM, Some(share), base);
        Self {
            member,
            ..Self::new(base, backlog)
        }
    }

    /// Another process, as it starts.
    pub(super) fn like(other: &Self) -> Self {
        Self::new(other.base, other.backlog)
    }

    pub(super) fn demand(&mut self, now: Duration, calls: usize) {
        for _ in 0..calls {
            self.member.wait(now, false, false);
        }
    }

    pub(super) fn held(&self) -> usize {
        self.member.held()
    }

    /// What it asks now, or when it looks again.
    pub(super) fn next(&mut self, now: Duration) -> Result<Question, Option<Duration>> {
        // What the thread does while it waits for the store.
        self.member.expire(self.base + now);
        self.abort(now);
        let over = self.member.over_at().map(|at| at - self.base);
        if self.asking.is_some() {
            return Err(over);
        }
        self.demand(now, self.backlog.saturating_sub(self.member.waiting()));
        if now < self.connected {
            let alone = self.member.alone_at(self.base + now);
            let alone = alone.map(|at| at - self.base);
            let ends = over.into_iter().chain([self.connected]).chain(alone);
            return Err(ends.min());
        }
        self.member.is_there(true);
        loop {
            match self.member.next(self.base + now) {
                Next::Ask(ask) => {
                    let number = |number: u64| i64::try_from(number).expect("not many");
                    let question = Question {
                        want: ask.want,
                        share: ask.share,
                        numbers: [number(ask.number), number(ask.answered), ask.server],
                        told: told(&ask),
                    };
                    self.asking = Some((ask, now));
                    return Ok(question);
                }
                Next::Wait(at) => match self.pushes.pop_front() {
                    Some(wait) => self.member.told(self.base + now + wait),
                    None => {
                        let at = at.map(|at| at - self.base);
                        return Err(over.into_iter().chain(at).min());
                    }
                },
            }
        }
    }

    /// The leases with which it sends, now.
    pub(super) fn answered(&mut self, now: Duration, reply: Reply) -> Vec<Id> {
        let Some((ask, sent)) = self.asking.take() else {
            return Vec::new();
        };
        let (sent, at) = (self.base + sent, self.base + now);
        let granted = self.member.answered(&ask, reply, sent, at);
        self.send(now, granted)
    }

    /// What it sends by its share now, without the store.
    pub(super) fn alone(&mut self, now: Duration) -> Vec<Id> {
        if self.asking.is_some() || now >= self.connected {
            return Vec::new();
        }
        self.demand(now, self.backlog.saturating_sub(self.member.waiting()));
        let granted = self.member.grant_alone(self.base + now);
        let sending = self.send(now, granted.into_iter().collect());
        self.seen.alone += u64::try_from(sending.len()).expect("few");
        sending
    }

    fn send(&mut self, now: Duration, granted: Vec<Granted>) -> Vec<Id> {
        let at = self.base + now;
        let mut sending = Vec::new();
        for Granted { id, until, over } in granted {
            match self.member.next_waiting() {
                Some(since) if at < until => {
                    self.member.used(id, at);
                    self.calls.insert(id, over);
                    self.seen.first.get_or_insert(now);
                    self.seen.sent += 1;
                    self.seen.waits.push(now - since);
                    sending.push(id);
                }
                stale => {
                    self.member.ended(Event::Unsent(id), at);
                    if let Some(since) = stale {
                        self.member.wait(since, false, false);
                    }
                }
            }
        }
        sending
    }

    pub(super) fn told(&mut self, wait: Duration) {
        self.pushes.push_back(wait);
    }

    /// The connection is lost, and another one open at `again`.
    pub(super) fn broken(&mut self, again: Duration) {
        self.member.is_there(false);
        if let Some((ask, _)) = self.asking.take() {
            self.member.unanswered(ask);
        }
        self.pushes.clear();
        self.connection += 1;
        self.connected = again;
        self.delivered = again;
    }

    /// The service has answered.
    pub(super) fn responded(&mut self, now: Duration, id: Id, heard: Heard) {
        if self.calls.remove(&id).is_some() {
            self.member.ended(Event::Proven(id, heard), self.base + now);
        }
    }

    /// Who waits for that answer has had enough of it.
    pub(super) fn gave_up(&mut self, now: Duration, id: Id) {
        if self.calls.remove(&id).is_some() {
            let lost = Event::Within(id, TERM.lost);
            self.member.ended(lost, self.base + now);
        }
    }

    /// Calls whose leases are over.
    fn abort(&mut self, now: Duration) {
        let is_over =
            |over: &mut oneshot::Receiver<_>| over.try_recv() == Err(TryRecvError::Closed);
        let over = self
            .calls
            .iter_mut()
            .filter_map(|(id, over)| is_over(over).then_some(*id));
        for id in over.collect::<Vec<_>>() {
            self.seen.aborted += 1;
            self.gave_up(now, id);
        }
    }
}

fn told(ask: &Ask) -> Vec<Told> {
    let micros = |span: Duration| i64::try_from(span.as_micros()).expect("no eternity");
    let event = |event: &Event| match *event {
        Event::Proven(id, Heard::Accepted) => Told::Proven(id, "a", 0),
        Event::Proven(id, Heard::Refused) => Told::Proven(id, "r", 0),
        Event::Proven(id, Heard::QuotaExceeded(hint)) => {
            Told::Proven(id, "q", hint.map_or(0, micros))
        }
        Event::Proven(id, Heard::Nothing) => Told::Proven(id, "n", 0),
        Event::Within(id, within) => Told::Lost(id, micros(within)),
        Event::Unsent(id) => Told::Unsent(id),
    };
    let kept = ask.kept.iter().map(|id| Told::Kept(*id));
    ask.events.iter().map(event).chain(kept).collect()
}

pub(super) const TERM: Term = Term {
    lease: Duration::from_micros(crate::store::KEEP.unsigned_abs()),
    lost: Duration::from_secs(10),
};
