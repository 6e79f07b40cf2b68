//! The rows of the queue: those who wait, line by line in their order, and those who have been called.

use std::{collections::BTreeMap, task::Waker, time::Duration};

use tokio::time::Instant;

use super::Line;
use crate::WaitCause;

/// A place in the order, which nobody else ever has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    line: Line,
    /// Rising with time, or falling in the line where the last to come is the first.
    order: u64,
}

#[derive(Debug)]
pub(super) struct Rows {
    waiting: BTreeMap<Key, Node>,
    /// They have been called, and have not looked.
    called: BTreeMap<Key, Node>,
    /// How many have ever come.
    came: u64,
}

/// One who waits.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None` once it has been called.
    waker: Option<Waker>,
    /// When it was last called.
    called_at: Instant,
    /// Whether it did not look in time when it was called, and nobody waits for it.
    late: bool,
    /// When it came.
    pub(crate) since: Instant,
    /// What it was seen to wait for.
    pub(crate) cause: WaitCause,
    /// How many waited when it came.
    pub(crate) ahead: usize,
}

// === impl Key ===

impl Key {
    pub(super) const fn line(self) -> Line {
        self.line
    }
}

// === impl Rows ===

impl Rows {
    pub(super) const fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            called: BTreeMap::new(),
            came: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.called.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Node> {
        let waiting = self.waiting.get_mut(&key);
        waiting.or_else(|| self.called.get_mut(&key))
    }

    /// Whether anybody waits to be called in this line or before it.
    pub(super) fn any_up_to(&self, line: Line) -> bool {
        self.next().is_some_and(|next| next.line <= line)
    }

    /// The next one to be called.
    pub(super) fn next(&self) -> Option<Key> {
        self.waiting.first_key_value().map(|(key, _)| *key)
    }

    pub(super) fn is_called(&self, key: Key) -> bool {
        self.called.contains_key(&key)
    }

    /// Whether it has been called, and not longer ago than `patience`.
    pub(super) fn is_in_time(&self, key: Key, now: Instant, patience: Duration) -> bool {
        let called = self.called.get(&key);
        called.is_some_and(|node| now.saturating_duration_since(node.called_at) < patience)
    }

    /// Takes a place at the end of its line, or before it where the last to come is the first.
    pub(super) fn push(
        &mut self,
        line: Line,
        waker: Waker,
        since: Instant,
        cause: WaitCause,
    ) -> Key {
        self.came += 1;
        let order = match line {
            Line::Front => u64::MAX - self.came,
            Line::Late | Line::Back => self.came,
        };
        let node = Node {
            waker: Some(waker),
            called_at: since,
            late: false,
            since,
            cause,
            ahead: self.len(),
        };
        let key = Key { line, order };
        self.waiting.insert(key, node);
        key
    }

    /// Sets a waker; gives the one that was replaced, if it was another.
    pub(super) fn set_waker(&mut self, key: Key, waker: &Waker) -> Option<Waker> {
        let old = &mut self.get_mut(key)?.waker;
        match old {
            Some(old) if old.will_wake(waker) => None,
            old => old.replace(waker.clone()),
        }
    }

    /// It has not looked when it was called.
    pub(super) fn is_missed(&mut self, key: Key) {
        if let Some(node) = self.called.get_mut(&key) {
            node.late = true;
        }
    }

    /// It has been called. Gives whom to wake, and whether nobody waits for it.
    pub(super) fn call(&mut self, key: Key, now: Instant) -> (Option<Waker>, bool) {
        let Some(mut node) = self.waiting.remove(&key) else {
            return (None, false);
        };
        node.called_at = now;
        let called = (node.waker.take(), node.late);
        self.called.insert(key, node);
        called
    }

    /// It has looked and could not pass: it has its place in the line again. Whoever looks within
    /// `patience` is waited for the next time.
    pub(super) fn call_off(&mut self, key: Key, now: Instant, patience: Duration) {
        if let Some(mut node) = self.called.remove(&key) {
            node.late &= now.saturating_duration_since(node.called_at) >= patience;
            self.waiting.insert(key, node);
        }
    }

    /// Takes the wakers of all who have not been called, each of whom is to look.
    pub(super) fn wakers(&mut self) -> Vec<Waker> {
        let waiting = self.waiting.values_mut();
        waiting.filter_map(|node| node.waker.take()).collect()
    }

    /// Gives who has left.
    pub(super) fn remove(&mut self, key: Key) -> Option<Node> {
        let waiting = self.waiting.remove(&key);
        waiting.or_else(|| self.called.remove(&key))
    }
}

#[cfg(test)]
mod tests;
