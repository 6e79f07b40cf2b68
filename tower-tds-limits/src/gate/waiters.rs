//! A first-in, first-out list of wakers from which any one can leave in constant time.
//!
//! A doubly linked list by index: 32 bytes a waiter, no allocation of its own, no tombstones.

use std::task::Waker;

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

    pub(super) fn set_waker(&mut self, key: Key, waker: &Waker) {
        if let Some(Some(old)) = self.nodes.get_mut(key.0).map(|node| node.waker.as_mut()) {
            old.clone_from(waker);
        }
    }

    pub(super) fn remove(&mut self, key: Key) {
        let Some(node) = self.nodes.get_mut(key.0) else {
            return;
        };
        if node.waker.take().is_none() {
            return;
        }
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
