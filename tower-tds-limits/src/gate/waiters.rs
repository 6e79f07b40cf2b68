//! A first-in, first-out list of wakers from which any one can leave in constant time.
//!
//! A doubly linked list by index: 32 bytes a waiter, no allocation of its own, no tombstones.

use std::{mem, task::Waker};

/// A place in the list, good until it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(usize);

#[derive(Debug)]
pub(super) struct Waiters {
    nodes: Vec<Node>,
    /// The first free node; free nodes are linked by `next`.
    free: usize,
    front: usize,
    back: usize,
    len: usize,
}

#[derive(Debug)]
struct Node {
    /// `None` in a free node.
    waker: Option<Waker>,
    previous: usize,
    next: usize,
}

// === impl Waiters ===

impl Waiters {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            front: NONE,
            back: NONE,
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn is_front(&self, key: Key) -> bool {
        self.front == key.0
    }

    pub(super) fn front(&self) -> Option<&Waker> {
        self.nodes.get(self.front)?.waker.as_ref()
    }

    pub(super) fn push_back(&mut self, waker: Waker) -> Key {
        self.push_between(self.back, NONE, waker)
    }

    pub(super) fn push_front(&mut self, waker: Waker) -> Key {
        self.push_between(NONE, self.front, waker)
    }

    /// Gives the waker that was replaced, if it was another.
    pub(super) fn set_waker(&mut self, key: Key, waker: &Waker) -> Option<Waker> {
        let old = self.nodes.get_mut(key.0)?.waker.as_mut()?;
        (!old.will_wake(waker)).then(|| mem::replace(old, waker.clone()))
    }

    /// Gives the waker that was removed.
    pub(super) fn remove(&mut self, key: Key) -> Option<Waker> {
        let node = self.nodes.get_mut(key.0)?;
        let waker = node.waker.take()?;
        let Node { previous, next, .. } = *node;
        node.next = self.free;
        self.free = key.0;
        match self.nodes.get_mut(previous) {
            Some(previous) => previous.next = next,
            None => self.front = next,
        }
        match self.nodes.get_mut(next) {
            Some(next) => next.previous = previous,
            None => self.back = previous,
        }
        self.len = self.len.saturating_sub(1);
        Some(waker)
    }

    fn push_between(&mut self, previous: usize, next: usize, waker: Waker) -> Key {
        let node = Node {
            waker: Some(waker),
            previous,
            next,
        };
        let at = self.free;
        let at = if let Some(free) = self.nodes.get_mut(at) {
            self.free = free.next;
            *free = node;
            at
        } else {
            self.nodes.push(node);
            self.nodes.len().saturating_sub(1)
        };
        match self.nodes.get_mut(previous) {
            Some(previous) => previous.next = at,
            None => self.front = at,
        }
        match self.nodes.get_mut(next) {
            Some(next) => next.previous = at,
            None => self.back = at,
        }
        self.len = self.len.saturating_add(1);
        Key(at)
    }
}

/// No node: an index that no list reaches.
const NONE: usize = usize::MAX;

#[cfg(test)]
mod tests;
