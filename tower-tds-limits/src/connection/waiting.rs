//! Turns among hosts, where a pool passes over a connect that waits for a permit.
//!
//! A pool gives a socket that becomes free to its next request of the same host. If that is the
//! first here, it leaves the queue for it. If somebody behind it leaves, or nobody does, sockets
//! go round while the first one waits.

use std::time::Duration;

use tokio::time::Instant;

/// Those who wait for a permit, and the sockets that were handed on past them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    count: usize,
    /// Sockets handed on, of which nobody has left the queue for having got one.
    taken: u32,
    /// Those who have left for a socket that was not handed on yet, and until when it may be.
    owed: Option<(u32, Instant)>,
    /// Since when somebody has gone before the one who is the first now.
    passed_over: Option<Instant>,
}

// === impl Waiting ===

impl Waiting {
    /// So many wait now.
    pub(super) fn set(&mut self, count: usize) {
        if self.count == 0 && count > 0 {
            // Of those who waited before.
            self.passed();
        }
        self.count = count;
    }

    /// The first has got a permit.
    pub(super) fn passed(&mut self) {
        self.taken = 0;
        self.passed_over = None;
    }

    /// One of them has left, for it has got a socket of its pool.
    pub(super) fn served(&mut self, was_first: bool, now: Instant) {
        match self.taken.checked_sub(1) {
            Some(taken) => self.taken = taken,
            None => {
                let before = self.owed(now);
                let until = now.checked_add(HANDED_ON).unwrap_or(now);
                self.owed = Some((before.saturating_add(1), until));
            }
        }
        if was_first {
            self.passed_over = (self.taken > 0).then_some(now);
        } else {
            self.passed_over.get_or_insert(now);
        }
    }

    fn owed(&self, now: Instant) -> u32 {
        let owed = self.owed.filter(|(_, until)| now < *until);
        owed.map_or(0, |(count, _)| count)
    }

    /// A socket was handed on.
    pub(super) fn hand_on(&mut self, now: Instant) {
        if let Some(left) = self.owed(now).checked_sub(1) {
            self.owed = self.owed.map(|(_, until)| (left, until));
        } else if self.count > 0 {
            self.taken = self.taken.saturating_add(1);
            self.passed_over.get_or_insert(now);
        }
    }

    /// Whether that was not the first one's own socket: then it would have left.
    pub(super) fn is_passed_over(&self, now: Instant) -> bool {
        let long = |since| now.saturating_duration_since(since) >= HANDED_ON;
        self.count > 0 && self.passed_over.is_some_and(long)
    }
}

/// A pool hands a free connection to a waiting request at once, so one that is free for so long
/// is not wanted, and one who still waits then is not served by that. Short against the 100 ms in
/// which a request to another host shall go on.
pub(super) const HANDED_ON: Duration = Duration::from_millis(20);
