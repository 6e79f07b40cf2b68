use std::{collections::BTreeMap, task::Waker, time::Duration};

use tokio::time::Instant;

use super::{Deadline, Line};

/// Order of the waiters, and which of them has the turn.
///
/// Only waiters that want a turn are stored. A waiter whose inner service is not ready, or that was
/// not polled in time for its turn, keeps only its [`Place`], so that no scan meets it. When it is
/// polled, it passes before all later ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    runnable: BTreeMap<Place, (Waker, Option<Deadline>)>,
    turn: Option<Turn>,
    /// Number of turns in a row that ended unused.
    unused: u32,
    /// Number of places given out so far.
    places: u64,
    /// Number of places in use.
    waiting: usize,
}

/// Place of a waiter in the order, never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    line: Line,
    number: u64,
}

/// Turn of the waiter that was woken last. The others wait until that turn ends.
#[derive(Debug)]
struct Turn {
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

    /// How many want a turn before a newcomer of this line, or have one.
    pub(super) fn ahead(&self, line: Line) -> usize {
        let before = |place: &Place| place.line <= line;
        let turn = self.turn.iter().filter(|turn| before(&turn.place));
        let runnable = match line {
            Line::Back => self.runnable.len(),
            Line::Front => self
                .runnable
                .keys()
                .take_while(|place| before(place))
                .count(),
        };
        turn.count() + runnable
    }

    /// Whether another waiter could use a permit now.
    ///
    /// Looks at the last ones first, because they have the most time left.
    pub(super) fn is_wanted(&self, except: Place, can_use: impl Fn(Deadline) -> bool) -> bool {
        let mut others = self.runnable.iter().rev();
        others.any(|(place, (_, deadline))| *place != except && deadline.is_none_or(&can_use))
    }

    /// Returns the line of the next waiter that wants a turn.
    pub(super) fn next_line(&self) -> Option<Line> {
        let (place, _) = self.runnable.first_key_value()?;
        Some(place.line)
    }

    /// Takes a place behind all others of its line.
    pub(super) fn enter(&mut self, line: Line) -> Place {
        let number = self.places;
        self.places += 1;
        self.waiting += 1;
        Place { line, number }
    }

    /// Whether no other waiter is before this one. A call without a place (`None`) comes last in
    /// its line.
    pub(super) fn is_next(&self, place: Option<Place>, line: Line, now: Instant) -> bool {
        let is_before = |other: Place| match place {
            Some(place) => other < place,
            None => other.line <= line,
        };
        let next = self.runnable.first_key_value();
        let turn = self.turn.as_ref().filter(|turn| now < turn.ends);
        !next.is_some_and(|(next, _)| is_before(*next))
            && !turn.is_some_and(|turn| is_before(turn.place))
    }

    /// Records that the waiter wants a turn. Returns the waker that `waker` replaces.
    pub(super) fn want(
        &mut self,
        place: Place,
        waker: Waker,
        deadline: Option<Deadline>,
    ) -> Option<Waker> {
        if self.end_turn(place) {
            // The waiter was polled in time, but another call had taken the permit.
            self.unused = 0;
        }
        let replaced = self.runnable.insert(place, (waker, deadline));
        replaced.map(|(waker, _)| waker)
    }

    /// Records that the waiter wants no turn until it is polled again. Returns its waker.
    pub(super) fn skip(&mut self, place: Place) -> Option<Waker> {
        self.end_turn(place);
        self.runnable.remove(&place).map(|(waker, _)| waker)
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

    /// Gives the next waiter its turn if the limit is open for it. Returns when that turn ends, if
    /// another waiter could use the permit then.
    ///
    /// When a turn ends unused, the next one begins, and is half as long, so any number of waiters
    /// that are not polled costs twice [`PATIENCE`] together.
    pub(super) fn give_turn(
        &mut self,
        now: Instant,
        mut is_open: impl FnMut(Line) -> bool,
        woken: &mut Vec<Waker>,
    ) -> Option<Instant> {
        loop {
            let begins = match &self.turn {
                Some(turn) if now < turn.ends => return self.next_line().map(|_| turn.ends),
                Some(turn) => {
                    self.unused = self.unused.saturating_add(1);
                    turn.ends
                }
                None => now,
            };
            self.turn = None;
            let line = self.next_line()?;
            if !is_open(line) {
                return None;
            }
            let (place, (waker, _)) = self.runnable.pop_first()?;
            woken.push(waker);
            let length = PATIENCE / 1_u32.checked_shl(self.unused).unwrap_or(u32::MAX);
            let ends = begins + length;
            self.turn = Some(Turn { place, ends });
        }
    }

    /// Returns the wakers of all that want a turn.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        let waiters = self.runnable.values();
        waiters.map(|(waker, _)| waker.clone()).collect()
    }

    /// Ends the turn of this waiter. Returns whether it had one.
    fn end_turn(&mut self, place: Place) -> bool {
        self.turn.take_if(|turn| turn.place == place).is_some()
    }
}

/// Time in which a woken waiter has to be polled. Unless the machine is overloaded, a woken task is
/// polled within microseconds. At 50 requests a second, 5 ms are a quarter of the spacing.
const PATIENCE: Duration = Duration::from_millis(5);
