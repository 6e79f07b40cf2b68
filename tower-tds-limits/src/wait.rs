//! Waiting for a limit: one queue, in which the call that must start first is first, and which skips
//! waiters that are not polled. Its order and turns, here, are arithmetic on `now`.
//!
//! ```text
//! shared.rs   the limit and its queue, under one lock
//! waiter.rs   one waiter, which passes or keeps its rank
//! timer.rs    the task that wakes the next waiter when the limit opens by time alone
//! ```

pub(crate) mod shared;
mod timer;
pub(crate) mod waiter;

use std::{collections::BTreeMap, sync, task::Waker, time::Duration};

use tokio::time::Instant;

use crate::{
    clock,
    error::{Decision, WaitCause},
};

/// Limit on requests or sockets, as a state machine that is pure arithmetic: it decides when one
/// more may pass.
pub(crate) trait Limit {
    /// Value that a waiter gets when it passes.
    type Granted;

    /// Returns when one more of this priority may pass, as far as that is known at `now`, and the cause of
    /// the wait until then. Without a time it depends on an event.
    fn opens(&mut self, priority: Priority, now: Instant) -> (Option<Instant>, WaitCause);

    /// Whether one more of this priority may pass at `now`.
    fn is_open(&mut self, priority: Priority, now: Instant) -> bool {
        self.opens(priority, now).0.is_some_and(|at| at <= now)
    }

    /// Counts one more. Call it right after `is_open` at the same time.
    fn admit(&mut self, priority: Priority, deadline: Option<&CallDeadline>) -> Self::Granted;

    /// Returns the usual time from a grant to where such a deadline ends; zero if it is not known.
    fn usual(&self, _deadline: &CallDeadline) -> Duration {
        Duration::ZERO
    }
}

/// Priority of a call in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Ahead of all others, for token requests, on which the others depend.
    High,
    Normal,
}

/// When a call ends, and how long that is after its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallDeadline {
    pub(crate) at: Instant,
    pub(crate) whole: Duration,
    /// Whether it ends with the response body, and not with its head.
    pub(crate) has_body: bool,
}

/// Order of the waiters, and which of them has the turn.
///
/// Only waiters that want a turn are stored. A waiter whose inner service is not ready, or that was
/// not polled in time for its turn, keeps only its [`Rank`], so that no scan meets it. When it is
/// polled, it passes before all later ones.
#[derive(Default)]
struct Queue {
    /// Waiters that want a turn.
    runnable: BTreeMap<Rank, Waker>,
    turn: Option<Turn>,
    /// Number of turns in a row that ended unused.
    unused: u32,
    /// Number of ranks given out so far.
    ranks: u64,
    /// Number of ranks in use.
    waiting: usize,
}

/// Rank of a waiter in the order, never given out twice: the call that must start first, and alike
/// calls by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Priority,
    /// When the call must start.
    start: Instant,
    number: u64,
}

/// Turn of the waiters that were woken last. The others wait until it ends.
struct Turn {
    /// Last of them.
    rank: Rank,
    ends: Instant,
}

// === impl Queue ===

impl Queue {
    /// How many wait, skipped waiters included.
    fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether no waiter wants a turn or has one.
    #[inline]
    fn is_free(&self) -> bool {
        self.runnable.is_empty() && self.turn.is_none()
    }

    /// Returns the rank of a call that arrives now.
    fn enter(&mut self, priority: Priority, start: Instant) -> Rank {
        self.ranks += 1;
        self.waiting += 1;
        Rank {
            priority,
            start,
            number: self.ranks,
        }
    }

    /// Whether no other waiter is before this one.
    fn is_next(&self, rank: Rank) -> bool {
        let next = self.runnable.first_key_value().map(|(next, _)| *next);
        let turn = self.turn.as_ref().map(|turn| turn.rank);
        next.is_none_or(|next| rank <= next) && turn.is_none_or(|turn| rank <= turn)
    }

    /// Records that the waiter wants a turn. Returns the waker that `waker` replaces.
    fn want(&mut self, rank: Rank, waker: Waker) -> Option<Waker> {
        if self.end_turn(rank) {
            // The waiter was polled in time, but another call had taken the permit.
            self.unused = 0;
        }
        self.runnable.insert(rank, waker)
    }

    /// Records that the waiter wants no turn until it is polled again. Returns its waker.
    fn skip(&mut self, rank: Rank) -> Option<Waker> {
        self.end_turn(rank);
        self.runnable.remove(&rank)
    }

    /// Removes a waiter that passes. Returns its waker.
    fn pass(&mut self, rank: Rank) -> Option<Waker> {
        self.unused = 0;
        self.leave(rank)
    }

    /// Removes a waiter that gives up its rank. Returns its waker.
    fn leave(&mut self, rank: Rank) -> Option<Waker> {
        self.waiting = self.waiting.saturating_sub(1);
        self.skip(rank)
    }

    /// Gives the next waiter its turn if the limit is open for it. Returns when to do so again: at the end
    /// of its turn, or when the limit `opens` for it, if that is known.
    ///
    /// If `is_timer` and the turn is over, it was not used. The timer is a task like those of the
    /// waiters, so a runtime that is late is late for both, and takes no turn from a waiter that it
    /// has not polled yet. Each turn after an unused one is half as long, and that of eight times as
    /// many, so that any number of waiters that are not polled costs a few turns together.
    fn give_turn(
        &mut self,
        now: Instant,
        is_timer: bool,
        opens: impl FnOnce(Priority) -> Option<Instant>,
        woken: &mut Vec<Waker>,
    ) -> Option<Instant> {
        if let Some(turn) = &self.turn {
            if !is_timer || now < turn.ends {
                return Some(turn.ends);
            }
            self.turn = None;
            self.unused = (self.unused + 1).min(MOST_UNUSED);
        }
        let (rank, _) = self.runnable.first_key_value()?;
        let opens = opens(rank.priority)?;
        if now < opens {
            return Some(opens);
        }
        let mut last = None;
        for _ in 0..1_u32 << (3 * self.unused) {
            let Some((rank, waker)) = self.runnable.pop_first() else {
                break;
            };
            woken.push(waker);
            last = Some(rank);
        }
        let ends = now + PATIENCE / (1 << self.unused);
        self.turn = last.map(|rank| Turn { rank, ends });
        Some(ends)
    }

    /// Returns the wakers of all that want a turn.
    fn wakers(&self) -> Vec<Waker> {
        self.runnable.values().cloned().collect()
    }

    /// Ends the turn of this waiter, or one of later waiters. Returns whether there was one.
    fn end_turn(&mut self, rank: Rank) -> bool {
        self.turn.take_if(|turn| rank <= turn.rank).is_some()
    }
}

/// Time in which a woken waiter has to be polled. Unless the machine is overloaded, a woken task is
/// polled within microseconds. At 50 requests a second, 5 ms are a quarter of the spacing.
const PATIENCE: Duration = Duration::from_millis(5);

/// With more, a turn would be that of over two million.
const MOST_UNUSED: u32 = 7;

#[cfg(test)]
mod tests;
