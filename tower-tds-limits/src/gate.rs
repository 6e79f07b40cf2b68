//! A first-in, first-out queue before something that admits at its own times.
//!
//! There is no background task. Only the front waiter looks at the rule, with a timer of its own
//! if the rule names an instant; whoever changes the rule's state wakes the front waiter if that
//! changes what it waits for; whoever leaves the front wakes the next.

mod turn;
mod waiter;
mod waiters;

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use self::waiters::{Key, Waiters};
pub(crate) use self::{
    turn::{Permit, Turn},
    waiter::Waiter,
};
use crate::clock;

/// A pure state machine that says when one more may pass.
pub(crate) trait Admit {
    /// What is remembered of a grant.
    type Grant;

    /// When one more may pass, as far as is known at `now`.
    fn earliest(&mut self, now: Instant) -> Earliest;

    /// Counts one more; called only when `earliest` is [`Earliest::Now`].
    fn admit(&mut self, now: Instant) -> Self::Grant;

    /// Counts one more without a look at the clock, if that is right whatever it says.
    fn admit_undated(&mut self) -> Option<Self::Grant>;
}

/// When one more may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Earliest {
    /// At once.
    Now,
    /// Not before this instant, unless something is returned earlier.
    At(Instant),
    /// Not before something is returned, at a time nobody knows yet.
    OnReturn,
}

enum Pass<G> {
    Granted(G),
    Wait(Earliest),
}

/// Admits what a pure rule allows, in the order of asking.
pub(crate) struct Gate<A> {
    /// Guards the rule and the queue together, so that a grant and its order are one step. Never
    /// held across an `.await`, and no waker runs under it.
    state: Mutex<State<A>>,
}

struct State<A> {
    rule: A,
    waiters: Waiters,
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
    pub(crate) fn update_now<T>(&self, event: impl FnOnce(&mut A, Instant) -> T) -> T {
        self.update(|rule| event(rule, clock::now()))
    }

    /// Passes if nobody waits and there is room; otherwise says how long it would be to the
    /// next, if anybody can tell.
    pub(crate) fn try_pass(&self) -> Result<A::Grant, Option<Duration>> {
        let mut state = self.lock();
        let now = clock::now();
        let earliest = state.rule.earliest(now);
        if earliest == Earliest::Now && state.waiters.is_empty() {
            return Ok(state.rule.admit(now));
        }
        Err(match earliest {
            Earliest::At(at) => Some(at.saturating_duration_since(now)),
            Earliest::Now | Earliest::OnReturn => None,
        })
    }

    /// Passes, or takes a place in the queue.
    fn pass(&self, place: &mut Option<Key>, waker: &Waker) -> Pass<A::Grant> {
        let mut state = self.lock();
        // Half of what passing costs is a look at the clock.
        if place.is_none()
            && state.waiters.is_empty()
            && let Some(grant) = state.rule.admit_undated()
        {
            return Pass::Granted(grant);
        }
        let now = clock::now();
        let front = match *place {
            Some(key) => state.waiters.is_front(key),
            None => state.waiters.is_empty(),
        };
        let told = if front {
            state.rule.earliest(now)
        } else {
            Earliest::OnReturn
        };
        if told == Earliest::Now {
            let grant = state.rule.admit(now);
            let next = place.take().and_then(|key| state.leave(key, now));
            drop(state);
            wake(next);
            return Pass::Granted(grant);
        }
        match *place {
            Some(key) => state.waiters.set_waker(key, waker),
            None => *place = Some(state.waiters.push_back(waker.clone())),
        }
        if front {
            state.told = Some(told);
        }
        Pass::Wait(told)
    }

    /// Gives up a place in the queue.
    fn leave(&self, key: Key) {
        let mut state = self.lock();
        let next = state.leave(key, clock::now());
        drop(state);
        wake(next);
    }

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
    /// Takes a waiter out; gives the waker of the next one if it has to look now.
    fn leave(&mut self, key: Key, now: Instant) -> Option<Waker> {
        let was_front = self.waiters.is_front(key);
        self.waiters.remove(key);
        if !was_front {
            return None;
        }
        // The next one has not been told anything yet.
        self.told = Some(Earliest::OnReturn);
        self.front_to_wake(now)
    }

    /// The waker of the front waiter, if what it was last told no longer holds.
    fn front_to_wake(&mut self, now: Instant) -> Option<Waker> {
        let waker = self.waiters.front()?;
        let told = self.told?;
        let earliest = self.rule.earliest(now);
        if earliest == told {
            return None;
        }
        self.told = None;
        Some(waker.clone())
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;
