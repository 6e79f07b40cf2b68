//! Rows of waiters from which any one can leave in constant time.
//!
//! Doubly linked lists by index in one slab: no allocation for each waiter, no tombstones.

use std::{mem, task::Waker, time::Duration};

use tokio::time::Instant;

use super::Line;
use crate::WaitCause;

/// A place in the rows, good until it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(usize);

#[derive(Debug)]
pub(super) struct Rows {
    nodes: Vec<Node>,
    /// The first free node; free nodes are linked by `next`.
    free: usize,
    rows: [Row; 4],
    len: usize,
    /// How many have ever come.
    came: u64,
    /// The last that went back to its line, after which the next one of those often belongs.
    called_off: usize,
}

/// A list's ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    front: usize,
    back: usize,
}

/// One who waits.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None` once it has been called, and in a free node.
    waker: Option<Waker>,
    previous: usize,
    next: usize,
    line: Line,
    called: bool,
    /// When it was last called.
    called_at: Instant,
    /// Whether it did not look in time when it was called, and nobody waits for it.
    late: bool,
    /// Its number among all that have ever come, which tells it from who had the place before.
    pub(crate) number: u64,
    /// When it came.
    pub(crate) since: Instant,
    /// What it was seen to wait for.
    pub(crate) cause: WaitCause,
    /// How many waited when it came.
    pub(crate) ahead: usize,
}

// === impl Rows ===

impl Rows {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            rows: [Row {
                front: NONE,
                back: NONE,
            }; 4],
            len: 0,
            came: 0,
            called_off: NONE,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn get(&self, key: Key) -> Option<&Node> {
        self.nodes.get(key.0)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Node> {
        self.nodes.get_mut(key.0)
    }

    /// Whether anybody waits to be called in this line or before it.
    pub(super) fn any_up_to(&self, line: Line) -> bool {
        let up_to = self.rows.get(..=row(line)).unwrap_or_default();
        up_to.iter().any(|row| row.front != NONE)
    }

    /// The next one to be called.
    pub(super) fn next(&self) -> Option<(Key, Line)> {
        let lines = self.rows.get(..CALLED).unwrap_or_default();
        let front = lines.iter().map(|row| row.front).find(|at| *at != NONE)?;
        Some((Key(front), self.nodes.get(front)?.line))
    }

    pub(super) fn is_called(&self, key: Key) -> bool {
        self.get(key).is_some_and(|node| node.called)
    }

    /// Takes a place at the end of its line, or before it where the last to come is the first.
    /// Gives it and its number.
    pub(super) fn push(
        &mut self,
        line: Line,
        waker: Waker,
        since: Instant,
        cause: WaitCause,
    ) -> (Key, u64) {
        self.came = self.came.saturating_add(1);
        let node = Node {
            waker: Some(waker),
            previous: NONE,
            next: NONE,
            line,
            called: false,
            called_at: since,
            late: false,
            number: self.came,
            since,
            cause,
            ahead: self.len,
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
        match line {
            Line::Front => self.link_front(at, row(line)),
            Line::Late | Line::Back => self.link_back(at, row(line)),
        }
        self.len = self.len.saturating_add(1);
        (Key(at), self.came)
    }

    /// Sets a waker; gives the one that was replaced, if it was another.
    pub(super) fn set_waker(&mut self, key: Key, waker: &Waker) -> Option<Waker> {
        let old = &mut self.nodes.get_mut(key.0)?.waker;
        match old {
            Some(old) if old.will_wake(waker) => None,
            old => old.replace(waker.clone()),
        }
    }

    /// It is to look, and is not called.
    pub(super) fn take_waker(&mut self, key: Key) -> Option<Waker> {
        self.nodes.get_mut(key.0)?.waker.take()
    }

    /// Whether nobody waits for it when it is called.
    pub(super) fn is_late(&self, key: Key) -> bool {
        self.get(key).is_some_and(|node| node.late)
    }

    /// It has not looked when it was called.
    pub(super) fn is_missed(&mut self, key: Key) {
        if let Some(node) = self.nodes.get_mut(key.0) {
            node.late = node.called;
        }
    }

    /// It has been called; gives whom to wake.
    pub(super) fn call(&mut self, key: Key, now: Instant) -> Option<Waker> {
        self.unlink(key.0);
        self.link_back(key.0, CALLED);
        let node = self.nodes.get_mut(key.0)?;
        node.called = true;
        node.called_at = now;
        node.waker.take()
    }

    /// It has looked and could not pass: it has its place in the line again. Whoever looks within
    /// `patience` is waited for the next time.
    pub(super) fn call_off(&mut self, key: Key, now: Instant, patience: Duration) {
        self.unlink(key.0);
        let Some(node) = self.nodes.get_mut(key.0) else {
            return;
        };
        node.called = false;
        if now.saturating_duration_since(node.called_at) < patience {
            node.late = false;
        }
        let (line, number) = (node.line, node.number);
        match line {
            Line::Front => self.link_front(key.0, row(line)),
            Line::Late | Line::Back => {
                let before = self.last_before(line, number);
                self.link_after(key.0, before, row(line));
            }
        }
        self.called_off = key.0;
    }

    /// The last in a line that came before this number.
    fn last_before(&self, line: Line, number: u64) -> usize {
        let stands = |at: &usize| {
            let node = self.nodes.get(*at);
            node.is_some_and(|node| {
                !node.called && node.number != 0 && node.number < number && node.line == line
            })
        };
        let mut before = Some(self.called_off).filter(stands).unwrap_or(NONE);
        loop {
            let next = match self.nodes.get(before) {
                Some(node) => node.next,
                None => self.rows.get(row(line)).map_or(NONE, |row| row.front),
            };
            if !stands(&next) {
                return before;
            }
            before = next;
        }
    }

    /// Takes the wakers of all who have not been called, each of whom is to look.
    pub(super) fn wakers(&mut self) -> Vec<Waker> {
        let nodes = self.nodes.iter_mut();
        nodes.filter_map(|node| node.waker.take()).collect()
    }

    /// Gives who has left.
    pub(super) fn remove(&mut self, key: Key) -> Option<Node> {
        self.unlink(key.0);
        let free = self.free;
        let node = self.nodes.get_mut(key.0)?;
        let vacant = Node {
            waker: None,
            previous: NONE,
            next: free,
            number: 0,
            called: false,
            ..*node
        };
        let node = mem::replace(node, vacant);
        self.free = key.0;
        self.len = self.len.saturating_sub(1);
        Some(node)
    }

    fn unlink(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else {
            return;
        };
        let Node { previous, next, .. } = *node;
        let row = if node.called { CALLED } else { row(node.line) };
        match self.nodes.get_mut(previous) {
            Some(previous) => previous.next = next,
            None => self.row(row).front = next,
        }
        match self.nodes.get_mut(next) {
            Some(next) => next.previous = previous,
            None => self.row(row).back = previous,
        }
    }

    fn link_back(&mut self, at: usize, row: usize) {
        let back = mem::replace(&mut self.row(row).back, at);
        self.link(at, back, NONE);
        match self.nodes.get_mut(back) {
            Some(back) => back.next = at,
            None => self.row(row).front = at,
        }
    }

    /// Behind another one, or at the front if there is none.
    fn link_after(&mut self, at: usize, before: usize, row: usize) {
        let Some(node) = self.nodes.get_mut(before) else {
            self.link_front(at, row);
            return;
        };
        let next = mem::replace(&mut node.next, at);
        self.link(at, before, next);
        match self.nodes.get_mut(next) {
            Some(next) => next.previous = at,
            None => self.row(row).back = at,
        }
    }

    fn link_front(&mut self, at: usize, row: usize) {
        let front = mem::replace(&mut self.row(row).front, at);
        self.link(at, NONE, front);
        match self.nodes.get_mut(front) {
            Some(front) => front.previous = at,
            None => self.row(row).back = at,
        }
    }

    fn link(&mut self, at: usize, previous: usize, next: usize) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.previous = previous;
            node.next = next;
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "rows are numbered by lines, of which there are three, and by `CALLED`"
    )]
    fn row(&mut self, row: usize) -> &mut Row {
        &mut self.rows[row]
    }
}

// === impl Node ===

impl Node {
    pub(super) const fn line(&self) -> Line {
        self.line
    }
}

const fn row(line: Line) -> usize {
    match line {
        Line::Late => 0,
        Line::Front => 1,
        Line::Back => 2,
    }
}

/// The row of those who have been called and have not looked.
const CALLED: usize = 3;

/// No node: an index that no list reaches.
const NONE: usize = usize::MAX;

#[cfg(test)]
mod tests;
