use std::{collections::BTreeMap, task::Waker, time::Duration};

use tokio::time::Instant;

use super::Line;

/// Order of the waiters, and which of them has the turn.
///
/// Only waiters that want a turn are stored. A waiter whose inner service is not ready, or that was
/// not polled in time for its turn, keeps only its [`Place`], so that no scan meets it. When it is
/// polled, it passes before all later ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Waiters that want a turn.
    runnable: BTreeMap<Place, Waker>,
    turn: Option<Turn>,
    /// Number of turns in a row that ended unused.
    unused: u32,
    /// Number of places given out so far.
    places: u64,
    /// Number of places in use.
    waiting: usize,
}

/// Place of a waiter in the order, never given out twice: the call that must start first, and alike
/// calls by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    line: Line,
    /// When the call must start.
    start: Instant,
    number: u64,
}

/// Turn of the waiters that were woken last. The others wait until it ends.
#[derive(Debug)]
struct Turn {
    /// Last of them.
    place: Place,
    ends: Instant,
}

// === impl Queue ===

impl Queue {
    /// How many wait, skipped waiters included.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether no waiter wants a turn or has one.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.runnable.is_empty() && self.turn.is_none()
    }

    /// Returns the place of a call that arrives now.
    pub(super) fn enter(&mut self, line: Line, start: Instant) -> Place {
        self.places += 1;
        self.waiting += 1;
        Place {
            line,
            start,
            number: self.places,
        }
    }

    /// Whether no other waiter is before this one.
    pub(super) fn is_next(&self, place: Place) -> bool {
        let next = self.runnable.first_key_value().map(|(next, _)| *next);
        let turn = self.turn.as_ref().map(|turn| turn.place);
        next.is_none_or(|next| place <= next) && turn.is_none_or(|turn| place <= turn)
    }

    /// Records that the waiter wants a turn. Returns the waker that `waker` replaces.
    pub(super) fn want(&mut self, place: Place, waker: Waker) -> Option<Waker> {
        if self.end_turn(place) {
            // The waiter was polled in time, but another call had taken the permit.
            self.unused = 0;
        }
        self.runnable.insert(place, waker)
    }

    /// Records that the waiter wants no turn until it is polled again. Returns its waker.
    pub(super) fn skip(&mut self, place: Place) -> Option<Waker> {
        self.end_turn(place);
        self.runnable.remove(&place)
    }

    /// Removes a waiter that passes. Returns its waker.
    pub(super) fn pass(&mut self, place: Place) -> Option<Waker> {
        self.unused = 0;
        self.leave(place)
    }

    /// Removes a waiter that gives up its place. Returns its waker.
    pub(super) fn leave(&mut self, place: Place) -> Option<Waker> {
        self.waiting = self.waiting.saturating_sub(1);
        self.skip(place)
    }

    /// Gives the next waiter its turn if the limit is open for it. Returns when to do so again: at the end
    /// of its turn, or when the limit `opens` for it, if that is known.
    ///
    /// If `is_timer` and the turn is over, it was not used. The timer is a task like those of the
    /// waiters, so a runtime that is late is late for both, and takes no turn from a waiter that it
    /// has not polled yet. Each turn after an unused one is half as long, and that of eight times as
    /// many, so that any number of waiters that are not polled costs a few turns together.
    pub(super) fn give_turn(
        &mut self,
        now: Instant,
        is_timer: bool,
        opens: impl FnOnce(Line) -> Option<Instant>,
        woken: &mut Vec<Waker>,
    ) -> Option<Instant> {
        if let Some(turn) = &self.turn {
            if !is_timer || now < turn.ends {
                return Some(turn.ends);
            }
            self.turn = None;
            self.unused = (self.unused + 1).min(MOST_UNUSED);
        }
        let (place, _) = self.runnable.first_key_value()?;
        let opens = opens(place.line)?;
        if now < opens {
            return Some(opens);
        }
        let mut last = None;
        for _ in 0..1_u32 << (3 * self.unused) {
            let Some((place, waker)) = self.runnable.pop_first() else {
                break;
            };
            woken.push(waker);
            last = Some(place);
        }
        let ends = now + PATIENCE / (1 << self.unused);
        self.turn = last.map(|place| Turn { place, ends });
        Some(ends)
    }

    /// Returns the wakers of all that want a turn.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.runnable.values().cloned().collect()
    }

    /// Ends the turn of this waiter, or one of later waiters. Returns whether there was one.
    fn end_turn(&mut self, place: Place) -> bool {
        self.turn.take_if(|turn| place <= turn.place).is_some()
    }
}

/// Time in which a woken waiter has to be polled. Unless the machine is overloaded, a woken task is
/// polled within microseconds. At 50 requests a second, 5 ms are a quarter of the spacing.
const PATIENCE: Duration = Duration::from_millis(5);

/// With more, a turn would be that of over two million.
const MOST_UNUSED: u32 = 7;
