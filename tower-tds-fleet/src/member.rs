//! One member of a fleet: its share, and the times of its questions to the store. All of it is
//! arithmetic on `now`.

use std::time::Duration;

use tokio::time::Instant;
use tower_tds_limits::Share;

/// Share of a member, and its questions to the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Member {
    /// Number of the last question. It only grows, and the store refuses older ones.
    number: u64,
    /// Whether its answer may still come.
    is_asking: bool,
    /// When it was sent.
    asked: Option<Instant>,
    /// Smallest share of which each quota gets at least one request.
    unit: u32,
    share: Share,
    /// End of the share, until it was applied.
    until: Option<Instant>,
    /// Time on the store's clock in the last answer, and when its question was sent.
    clock: Option<(Duration, Instant)>,
    /// Whether that clock was set forward, until an answer shows that the store has recorded this.
    stepped: bool,
    /// When the member began to leave.
    leaves_at: Option<Instant>,
}

/// State of the member's limiter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LimiterState {
    pub(crate) held: Share,
    pub(crate) in_flight: u32,
    pub(crate) waiting: u32,
    /// Calls that wait for a socket.
    pub(crate) without_socket: u32,
    /// Remaining silence after a 423, or pause after a 429.
    pub(crate) silence: Duration,
    /// All of the limits, as refusals of this member have lowered them.
    pub(crate) whole: Share,
    /// Whether the machine has been suspended since the share was applied.
    pub(crate) suspended: bool,
}

/// Question to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) number: u64,
    /// Part of the limits that the limiter holds.
    pub(crate) held: Share,
    /// Share that the member still has.
    pub(crate) share: Share,
    pub(crate) wanted: Share,
    pub(crate) whole: Share,
    pub(crate) silence: Duration,
    pub(crate) leaves: bool,
    /// Whether the store's clock was set forward.
    pub(crate) stepped: bool,
}

/// Part of the store's answer that the member needs.
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
    /// The driver has read the state of the limiter.
    Seen(LimiterState),
    /// The store has answered the question with this number.
    Answered(u64, Answer),
    /// The question with this number has failed.
    Failed(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Apply this share until that time. If the time has passed, close all sockets as well.
    Apply(Share, Instant),
    Ask(Question),
    /// Look again after [`LOOK`].
    Wait,
}

// === impl Member ===

impl Member {
    pub(crate) fn new(unit: u32) -> Self {
        Self {
            unit,
            ..Self::default()
        }
    }

    /// Returns the member's current share, which is empty once it has ended.
    pub(crate) fn share(&self, now: Instant) -> Share {
        let until = self.until.filter(|until| now < *until);
        until.map_or(Share::default(), |_| self.share)
    }

    /// Whether the share has ended, and its end was applied.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_none()
    }

    pub(crate) fn on(&mut self, event: Event, now: Instant) -> Action {
        match event {
            Event::Seen(load) => self.look(load, now),
            Event::Answered(number, answer) if self.is_awaited(number, now) => {
                self.is_asking = false;
                self.stepped = self.has_stepped(answer.clock, now);
                if self.stepped {
                    // On a clock that was set forward, other members look silent, and their permits
                    // free.
                    return Action::Wait;
                }
                self.share = answer.share;
                let until = self.asked.unwrap_or(now) + ENDS;
                self.until = Some(until);
                // During a silence there are no requests. During a departure there are no sockets, so
                // that no call is sent, but the requests stay until they are over.
                let mut usable = answer.share;
                if !answer.silence.is_zero() {
                    usable.requests = 0;
                } else if self.leaves_at.is_some() {
                    usable.connections = 0;
                }
                Action::Apply(usable, until)
            }
            Event::Failed(number) if number == self.number => {
                self.is_asking = false;
                Action::Wait
            }
            Event::Answered(..) | Event::Failed(..) => Action::Wait,
        }
    }

    /// Whether a member that leaves can go, because it holds nothing or has waited five seconds.
    /// The first call begins the departure.
    pub(crate) fn has_left(&mut self, load: LimiterState, now: Instant) -> bool {
        let since = *self.leaves_at.get_or_insert(now);
        load.held == Share::default() || since + ENDS <= now
    }

    /// Returns the last question of a member that leaves, with what it still holds.
    pub(crate) fn leave(&mut self, load: LimiterState, now: Instant) -> Question {
        self.until = None;
        self.question(load, now, true)
    }

    /// Whether an answer to this question still counts, because it is the last question and not too
    /// old.
    fn is_awaited(&self, number: u64, now: Instant) -> bool {
        let is_recent = self.asked.is_some_and(|asked| now < asked + GIVE_UP);
        number == self.number && self.is_asking && is_recent
    }

    /// Whether the store's clock went forward, between two answers, by more than the time from the
    /// first question to the second answer. No delay of a message can cause this.
    fn has_stepped(&mut self, clock: Duration, now: Instant) -> bool {
        let asked = self.asked.unwrap_or(now);
        let before = self.clock.replace((clock, asked));
        before.is_some_and(|(before, at)| clock > before + (now - at) + STEP)
    }

    fn look(&mut self, load: LimiterState, now: Instant) -> Action {
        if load.suspended {
            // The clock that measures the end of the share stood still.
            (self.until, self.is_asking, self.clock) = (Some(now), false, None);
        }
        if self.until.is_some_and(|until| until <= now) {
            self.until = None;
            return Action::Apply(Share::default(), now);
        }
        let is_idle = load.in_flight == 0 && load.waiting == 0 && load.held.requests == 0;
        let is_idle = is_idle && load.silence.is_zero() && self.leaves_at.is_none();
        let cadence = if is_idle { USUAL } else { BUSY };
        let is_due = self.asked.is_none_or(|asked| asked + cadence <= now);
        if self.is_awaited(self.number, now) || !is_due {
            return Action::Wait;
        }
        Action::Ask(self.question(load, now, false))
    }

    fn question(&mut self, load: LimiterState, now: Instant, leaves: bool) -> Question {
        self.number += 1;
        (self.asked, self.is_asking) = (Some(now), true);
        let LimiterState { held, whole, .. } = load;
        let waiting = self.leaves_at.map_or(load.waiting, |_| 0);
        let is_active = load.in_flight > 0 || waiting > 0 || held.requests > 0;
        let more = |held: u32, waiting: u32, whole: u32| held.saturating_add(waiting).min(whole);
        let unit = self.unit;
        let requests = more(held.requests, waiting.saturating_mul(unit), whole.requests);
        let places = more(held.places, waiting, whole.places);
        // In advance, a member wants only half of what it has, because all that it claims is withheld
        // for a long time if it dies. One socket is for token requests.
        let grows = load.without_socket.min(held.connections.div_ceil(2));
        let sockets = more(held.connections, grows + 1, whole.connections);
        let mut wanted = Share {
            requests: requests.max(unit),
            places: places.max(1),
            connections: sockets.max(2),
        };
        if !is_active {
            (wanted.requests, wanted.places, wanted.connections) = (0, 0, held.connections);
        }
        Question {
            number: self.number,
            held,
            share: self.share(now),
            wanted,
            whole,
            silence: load.silence,
            leaves,
            stepped: self.stepped,
        }
    }
}

/// Life of a share, from when its question is sent. The store counts from its answer, so the share
/// ends earlier for the member than for the store. Four questions in a row can be lost before it ends.
pub(crate) const ENDS: Duration = Duration::from_secs(5);

/// Age at which an answer no longer counts.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(2);

/// Time between two looks of a member at its limiter. It is a tenth of [`BUSY`], so that looks add
/// little to the wait for a question.
pub(crate) const LOOK: Duration = Duration::from_millis(25);

/// Shortest step of the store's clock that matters. Shorter ones do not, because `Load::counts_for`
/// has two intervals in reserve; two clocks take half an hour to differ by this much.
const STEP: Duration = Duration::from_secs(1);

/// Time between two questions of a member that has calls, or was refused.
const BUSY: Duration = Duration::from_millis(250);

/// Time between two questions of an idle member.
const USUAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
