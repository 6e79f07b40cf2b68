//! One member of a fleet: its share, and the times of its questions. Arithmetic on `now`.

use std::time::Duration;

use tokio::time::Instant;
use tower_tds_limits::share::Share;

/// Share of a member, and its questions to the store.
#[derive(Debug)]
pub(crate) struct Member {
    /// Number of the last question, which only grows; the store refuses older ones.
    number: u64,
    /// Last question, while its answer may come.
    asked: Option<Instant>,
    /// When the last question was sent.
    last: Option<Instant>,
    share: Share,
    /// End of the share.
    until: Instant,
    /// End of the silence or pause after a refusal of any member.
    silent_until: Instant,
    earlier: Earlier,
    /// Whether the end of the share was applied.
    is_over: bool,
    /// Time on the store's clock in the last answer, and when its question was sent.
    clock: Option<(Duration, Instant)>,
    /// Whether that clock was set forward, and no answer shows that the store has the news.
    stepped: bool,
    /// When the member began to leave.
    leaves_at: Option<Instant>,
}

/// Earlier states, which show what has changed since.
#[derive(Debug, Default)]
struct Earlier {
    waiting: bool,
    /// Last calls that waited for a socket, and when.
    without_socket: Option<(u32, Instant)>,
    shrinking: bool,
    refused: bool,
    silenced: bool,
    closing: bool,
}

/// State of the member's limiter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    pub(crate) held: Share,
    pub(crate) in_flight: u32,
    pub(crate) waiting: u32,
    /// Calls that wait for a socket.
    pub(crate) without_socket: u32,
    /// Remaining silence after a 423, and remaining pause after a 429.
    pub(crate) silence: Duration,
    pub(crate) pause: Duration,
    /// All of the limits, on the rung of this member.
    pub(crate) whole: Share,
    /// Smallest number of requests of which each quota gets at least one.
    pub(crate) unit: u32,
    /// Whether the machine was suspended since the share was applied.
    pub(crate) suspended: bool,
}

/// Question to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) number: u64,
    /// Larger one of share and held, for each of the three numbers.
    pub(crate) claim: Share,
    /// Share that the member still has.
    pub(crate) share: Share,
    pub(crate) wanted: Share,
    pub(crate) whole: Share,
    pub(crate) unit: u32,
    pub(crate) silence: Duration,
    pub(crate) pause: Duration,
    pub(crate) leaves: bool,
    /// Whether the store's clock was set forward.
    pub(crate) stepped: bool,
}

/// Answer of the store, as far as the member needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) share: Share,
    /// Remaining silence or pause of any member.
    pub(crate) silence: Duration,
    /// Time on the store's clock.
    pub(crate) clock: Duration,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// State of the limiter.
    Seen(Load),
    /// Answer to the question with this number.
    Answered(u64, Answer),
    /// No answer to the question with this number.
    Failed(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Apply this share until that time. If that has passed, close all sockets as well.
    Apply(Share, Instant),
    /// Close all sockets if no request is in flight, then apply this share.
    CloseIdle(Share, Instant),
    Ask(Question),
    /// Look again after [`LOOK`].
    Wait,
}

// === impl Member ===

impl Member {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            number: 0,
            asked: None,
            last: None,
            share: Share::default(),
            until: now,
            silent_until: now,
            earlier: Earlier::default(),
            is_over: true,
            clock: None,
            stepped: false,
            leaves_at: None,
        }
    }

    /// Returns the member's current share.
    pub(crate) fn share(&self, now: Instant) -> Share {
        if now < self.until {
            self.share
        } else {
            Share::default()
        }
    }

    pub(crate) fn on(&mut self, event: Event, now: Instant) -> Action {
        match event {
            Event::Seen(load) => self.look(load, now),
            Event::Answered(number, answer) if self.is_awaited(number, now) => {
                if let Some(asked) = self.asked.take() {
                    if self.has_stepped(answer.clock, asked, now) {
                        // By a clock that was set forward, others look silent, and their permits free.
                        self.stepped = true;
                        return Action::Wait;
                    }
                    self.stepped = false;
                    self.share = answer.share;
                    self.until = asked + ENDS;
                    self.is_over = false;
                    self.silent_until = now + answer.silence;
                }
                self.apply(now)
            }
            Event::Failed(number) if self.is_awaited(number, now) => {
                self.asked = None;
                Action::Wait
            }
            Event::Answered(..) | Event::Failed(..) => Action::Wait,
        }
    }

    /// Whether a member that leaves can go: it holds nothing, or has waited five seconds. The first
    /// call begins the departure.
    pub(crate) fn has_left(&mut self, load: Load, now: Instant) -> bool {
        let since = *self.leaves_at.get_or_insert(now);
        load.held == Share::default() || since + ENDS <= now
    }

    /// Returns the last question of a member that leaves, with what it still holds.
    pub(crate) fn leave(&mut self, load: Load, now: Instant) -> Question {
        self.until = now;
        self.question(load, now, true)
    }

    /// Whether the answer to this question still counts: it is the last one, and not too old.
    fn is_awaited(&self, number: u64, now: Instant) -> bool {
        number == self.number && self.asked.is_some_and(|asked| now < asked + GIVE_UP)
    }

    /// Whether the store's clock has gone further between two answers than time has, from the first
    /// question to the second answer. No delay of a message looks like that.
    fn has_stepped(&mut self, clock: Duration, asked: Instant, now: Instant) -> bool {
        let before = self.clock.replace((clock, asked));
        before.is_some_and(|(before, at)| clock > before + (now - at) + STEP)
    }

    fn apply(&mut self, now: Instant) -> Action {
        self.earlier.silenced = now < self.silent_until;
        Action::Apply(self.usable(), self.until)
    }

    /// Returns the share, without requests during a silence. During a departure it has no sockets,
    /// so that no call is sent, while those that no request has used close within its requests.
    fn usable(&self) -> Share {
        match (self.earlier.silenced, self.leaves_at) {
            (true, _) => self.share.requests(0),
            (false, Some(_)) => self.share.connections(0),
            (false, None) => self.share,
        }
    }

    fn look(&mut self, load: Load, now: Instant) -> Action {
        if load.suspended {
            // Its end is measured by a clock that stood still.
            (self.until, self.asked, self.is_over) = (now, None, false);
            self.clock = None;
        }
        if !self.is_over && self.until <= now {
            self.is_over = true;
            self.share = Share::default();
            return Action::Apply(self.share, now);
        }
        if !self.is_over && self.earlier.silenced && self.silent_until <= now {
            return self.apply(now);
        }
        let share = self.share(now);
        let closing = load.in_flight == 0 && load.held.connections > self.usable().connections;
        if closing != self.earlier.closing && !self.is_over {
            self.earlier.closing = closing;
            if closing {
                return Action::CloseIdle(self.usable(), self.until);
            }
        }
        if self.asked.is_some_and(|asked| asked + GIVE_UP <= now) {
            self.asked = None;
        }
        if load.without_socket > 0 {
            self.earlier.without_socket = Some((load.without_socket, now));
        }
        let shrinking = larger(load.held, share) != share;
        let refused = !load.silence.is_zero() || !load.pause.is_zero();
        let at_once = (self.earlier.waiting && load.waiting == 0)
            || (self.earlier.shrinking && !shrinking)
            || (!self.earlier.refused && refused);
        let cadence = if at_once {
            AT_LEAST
        } else if load.waiting > 0 || self.leaves_at.is_some() {
            WAITING
        } else {
            USUAL
        };
        let is_due = self.last.is_none_or(|last| last + cadence <= now);
        if self.asked.is_some() || !is_due {
            // Keeps the state of the last question, so that the next one follows a change at once.
            return Action::Wait;
        }
        self.earlier.waiting = load.waiting > 0;
        self.earlier.shrinking = shrinking;
        self.earlier.refused = refused;
        Action::Ask(self.question(load, now, false))
    }

    fn question(&mut self, load: Load, now: Instant, leaves: bool) -> Question {
        self.number += 1;
        self.asked = Some(now);
        self.last = Some(now);
        let Load { held, whole, .. } = load;
        // A departure has one more request at a time, for the close of an unused socket.
        let waiting = load.waiting.min(self.leaves_at.map_or(u32::MAX, |_| 1));
        let is_active = load.in_flight > 0 || waiting > 0 || held.requests > 0;
        let more = |held: u32, waiting: u32, whole: u32| held.saturating_add(waiting).min(whole);
        let unit = load.unit;
        let requests = more(held.requests, waiting.saturating_mul(unit), whole.requests);
        let places = more(held.places, waiting, whole.places);
        // If a member dies, what it claimed in advance is withheld for long, so it wants half of what it
        // has. One socket is for token requests.
        let waited = self.earlier.without_socket;
        let waited = waited.filter(|(_, at)| now < *at + PEAKS);
        let without_socket = waited.map_or(0, |(calls, _)| calls);
        let grows = without_socket.min(held.connections.div_ceil(2));
        let sockets = more(held.connections, grows + 1, whole.connections);
        let wanted = if is_active {
            let sends = Share::default().requests(requests.max(unit));
            sends.places(places.max(1)).connections(sockets.max(2))
        } else {
            Share::default().connections(held.connections)
        };
        Question {
            number: self.number,
            claim: larger(held, self.share(now)),
            share: self.share(now),
            wanted,
            whole,
            unit,
            silence: load.silence,
            pause: load.pause,
            leaves,
            stepped: self.stepped,
        }
    }
}

/// Returns the larger one of each number.
pub(crate) fn larger(one: Share, other: Share) -> Share {
    Share::default()
        .requests(one.requests.max(other.requests))
        .places(one.places.max(other.places))
        .connections(one.connections.max(other.connections))
}

/// Life of a share, from the sending of its question. As the store counts from its answer, the member's
/// end comes first. Four questions can be lost before it ends.
pub(crate) const ENDS: Duration = Duration::from_secs(5);

/// Age at which an answer no longer counts.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(2);

/// Time between two looks of a member at its limiter. A quarter of [`AT_LEAST`], so a look adds little
/// to the wait for a question.
pub(crate) const LOOK: Duration = Duration::from_millis(25);

/// How long a member wants more sockets after a call that waited for one. Such waits are shorter than
/// the time between two questions, and they return with each peak.
const PEAKS: Duration = Duration::from_secs(2);

/// Shortest step of the store's clock that matters: `Limits::memory` counts two intervals more than
/// needed, and two clocks differ by less than this in half an hour.
const STEP: Duration = Duration::from_secs(1);

/// Shortest time between two questions.
const AT_LEAST: Duration = Duration::from_millis(100);

/// Time between two questions while calls wait.
const WAITING: Duration = Duration::from_millis(250);

/// Time between two questions of a member without waiting calls.
const USUAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
