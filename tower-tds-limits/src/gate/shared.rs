//! What those at a gate share: the rule and the queue, behind one lock.

use std::{fmt, sync::PoisonError, task::Waker, time::Duration};

use tokio::time::Instant;

use super::{
    Admit, Earliest, Line,
    sync::{Mutex, MutexGuard},
    waiters::{Key, Waiters},
};
use crate::clock;

/// What a look at the gate comes to.
pub(super) enum Pass<G> {
    Granted(G),
    Wait(Earliest),
}

/// Admits what a pure rule allows, in the order of asking.
pub(crate) struct Gate<A> {
    /// Guards the rule and the queue together, so that a grant and its order are one step. Never
    /// held across an `.await`, and no waker is woken or dropped under it.
    state: Mutex<State<A>>,
}

struct State<A> {
    rule: A,
    waiters: Waiters,
    /// How many of them came to the front: they stand before all others.
    in_front: usize,
    /// What the front waiter was last told; `None` while it has been woken to look again.
    told: Option<Earliest>,
}

// === impl Gate ===

impl<A: Admit> Gate<A> {
    pub(crate) fn new(rule: A) -> Self {
        Self {
            state: Mutex::new(State {
                rule,
                waiters: Waiters::new(),
                in_front: 0,
                told: None,
            }),
        }
    }

    /// Reads the rule's state and the number of waiters.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut A, usize) -> T) -> T {
        let mut state = self.lock();
        let waiting = state.waiters.len();
        read(&mut state.rule, waiting)
    }

    /// Changes the rule's state, and wakes the front waiter if that concerns it.
    #[inline]
    pub(crate) fn update<T>(&self, event: impl FnOnce(&mut A) -> T) -> T {
        let mut state = self.lock();
        let told = event(&mut state.rule);
        // Nobody waits as a rule, and then the time is nobody's concern.
        let waker = if state.waiters.is_empty() {
            None
        } else {
            state.front_to_wake(clock::now())
        };
        drop(state);
        wake(waker);
        told
    }

    /// As [`update`](Self::update), for an event that has a time. It is read under the lock, so
    /// that events reach the rule in order.
    #[inline]
    pub(crate) fn update_now<T>(&self, event: impl FnOnce(&mut A, Instant) -> T) -> T {
        self.update(|rule| event(rule, clock::now()))
    }

    /// Passes if nobody waits before it and there is room; otherwise says how long it would be to
    /// the next, if anybody can tell.
    pub(crate) fn try_pass(&self, line: Line) -> Result<A::Grant, Option<Duration>> {
        let mut state = self.lock();
        let now = clock::now();
        let earliest = state.earliest(line, now);
        if earliest == Earliest::Now && state.is_first(line) {
            return Ok(state.rule.admit(now));
        }
        Err(match earliest {
            Earliest::At(at) => Some(at.saturating_duration_since(now)),
            Earliest::Now | Earliest::OnReturn => None,
        })
    }

    /// Passes, or takes a place in the queue.
    #[inline]
    pub(super) fn pass(
        &self,
        place: &mut Option<Key>,
        line: Line,
        waker: &Waker,
    ) -> Pass<A::Grant> {
        let mut state = self.lock();
        // Half of what passing costs is a look at the clock.
        if place.is_none()
            && state.is_first(line)
            && let Some(grant) = state.rule.admit_undated()
        {
            return Pass::Granted(grant);
        }
        Self::pass_now(state, place, line, waker)
    }

    fn pass_now(
        mut state: MutexGuard<'_, State<A>>,
        place: &mut Option<Key>,
        line: Line,
        waker: &Waker,
    ) -> Pass<A::Grant> {
        let now = clock::now();
        let front = match *place {
            Some(key) => state.waiters.is_front(key),
            None => state.is_first(line),
        };
        let told = if front {
            state.earliest(line, now)
        } else {
            Earliest::OnReturn
        };
        if told == Earliest::Now {
            let grant = state.rule.admit(now);
            if let Some(key) = place.take() {
                Self::take_out(state, key, line, now);
            }
            return Pass::Granted(grant);
        }
        let replaced = match *place {
            Some(key) => state.waiters.set_waker(key, waker),
            None => {
                let waker = waker.clone();
                *place = Some(match line {
                    Line::Back => state.waiters.push_back(waker),
                    Line::Front => {
                        state.in_front = state.in_front.saturating_add(1);
                        state.waiters.push_front(waker)
                    }
                });
                None
            }
        };
        if front {
            state.told = Some(told);
        }
        drop(state);
        drop(replaced);
        Pass::Wait(told)
    }

    /// Gives up a place in the queue.
    pub(super) fn leave(&self, key: Key, line: Line) {
        Self::take_out(self.lock(), key, line, clock::now());
    }

    /// Takes a waiter out, and wakes the next one if it has to look now.
    fn take_out(mut state: MutexGuard<'_, State<A>>, key: Key, line: Line, now: Instant) {
        let was_front = state.waiters.is_front(key);
        let own = state.waiters.remove(key);
        if line == Line::Front {
            state.in_front = state.in_front.saturating_sub(1);
        }
        let next = if was_front {
            // The next one has not been told anything yet.
            state.told = Some(Earliest::OnReturn);
            state.front_to_wake(now)
        } else {
            None
        };
        drop(state);
        wake(next);
        // What a waker drops may look at the gate.
        drop(own);
    }

    #[cfg(test)]
    pub(super) fn is_locked(&self) -> bool {
        self.state.try_lock().is_err()
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State<A>> {
        // A panic under this lock can only come from a rule, whose state is plain numbers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A> fmt::Debug for Gate<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

// === impl State ===

impl<A: Admit> State<A> {
    /// Whether one who comes now has nobody before it.
    fn is_first(&self, line: Line) -> bool {
        line == Line::Front || self.waiters.is_empty()
    }

    /// When one more from this line may pass.
    #[inline]
    fn earliest(&mut self, line: Line, now: Instant) -> Earliest {
        match line {
            Line::Back => self.rule.earliest(now),
            Line::Front => self.rule.earliest_in_front(now),
        }
    }

    /// The waker of the front waiter, if what it was last told no longer holds.
    fn front_to_wake(&mut self, now: Instant) -> Option<Waker> {
        let told = self.told?;
        let line = match self.in_front {
            0 => Line::Back,
            _ => Line::Front,
        };
        let earliest = self.earliest(line, now);
        if earliest == told {
            return None;
        }
        let waker = self.waiters.front()?.clone();
        self.told = None;
        Some(waker)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
