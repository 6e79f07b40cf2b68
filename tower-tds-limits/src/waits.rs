//! What calls wait for: the causes, and what was waited so far.

use std::{collections::VecDeque, fmt, time::Duration};

use tokio::time::Instant;

use crate::queue::{Key, Node};

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitCause {
    /// A permit of a quota: as many are live as it allows.
    Window,
    /// A quota as a counter sees it that weighs the window before.
    Counter,
    /// Room in a leaky bucket.
    Bucket,
    /// The even spacing after a burst.
    Pace,
    /// A place in flight: [`Limits::in_flight`](crate::Limits::in_flight).
    InFlight,
    /// The end of the silence after a refusal that concerns the address.
    Silence,
    /// The end of this credential's pause after a 429.
    Pause,
    /// A socket: [`Limits::connections`](crate::Limits::connections).
    Connection,
    /// A lease of the quota that several processes share: [`Leases`](crate::Leases).
    Lease,
}

/// How often something was waited for, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Waited {
    /// How many waits are over, whether they came to a permit or were given up.
    pub count: u64,
    /// The time of all of them.
    pub total: Duration,
    /// The longest of them.
    pub longest: Duration,
}

/// In the order of [`WaitCause::ALL`].
pub(crate) type ByCause = [Waited; WaitCause::ALL.len()];

/// What was waited for in one queue.
#[derive(Debug)]
pub(crate) struct Waits {
    by_cause: ByCause,
    /// Waits of this length are told about.
    notice: Duration,
    /// Who will have waited for as long, and when, in order.
    due: VecDeque<(Instant, Key)>,
}

// === impl WaitCause ===

impl WaitCause {
    /// All of them, in the order of their documentation.
    pub(crate) const ALL: [Self; 9] = [
        Self::Window,
        Self::Counter,
        Self::Bucket,
        Self::Pace,
        Self::InFlight,
        Self::Silence,
        Self::Pause,
        Self::Connection,
        Self::Lease,
    ];

    fn place(self) -> usize {
        let place = Self::ALL.iter().position(|cause| *cause == self);
        place.unwrap_or_default()
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "a permit of the quota",
            Self::Counter => "room in a counter that weighs the window before",
            Self::Bucket => "room in a leaky bucket",
            Self::Pace => "the even spacing",
            Self::InFlight => "a place in flight",
            Self::Silence => "the end of the silence after a refusal",
            Self::Pause => "the end of the pause after a 429",
            Self::Connection => "a socket",
            Self::Lease => "a lease of the shared quota",
        })
    }
}

// === impl Waited ===

impl Waited {
    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.total = self.total.saturating_add(other.total);
        self.longest = self.longest.max(other.longest);
    }
}

// === impl Waits ===

impl Waits {
    pub(crate) fn new(notice: Duration) -> Self {
        Self {
            by_cause: ByCause::default(),
            notice,
            due: VecDeque::new(),
        }
    }

    /// Adds what was waited for here.
    pub(crate) fn add_to(&self, all: &mut ByCause) {
        for (all, here) in all.iter_mut().zip(self.by_cause) {
            all.add(here);
        }
    }

    /// Somebody has begun to wait, whose wait is to be told about if it is long.
    pub(crate) fn began(&mut self, now: Instant, key: Key) {
        if let Some(at) = now.checked_add(self.notice) {
            self.due.push_back((at, key));
        }
    }

    /// Forgets those who are gone, of whom there can be many before their time: so many wait.
    pub(crate) fn forget_gone(&mut self, waiting: usize, waits: impl Fn(Key) -> bool) {
        if self.due.len() > waiting.saturating_mul(2).saturating_add(SPARE) {
            self.due.retain(|(_, key)| waits(*key));
        }
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.due.len()
    }

    /// When the next wait has to be told about.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// The next who has waited for that long by `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Key> {
        let due = self.due()? <= now;
        due.then(|| self.due.pop_front())?.map(|(_, key)| key)
    }

    /// One more was waited for.
    pub(crate) fn add(&mut self, cause: WaitCause, waited: Duration) {
        if let Some(all) = self.by_cause.get_mut(cause.place()) {
            all.add(Waited {
                count: 1,
                total: waited,
                longest: waited,
            });
        }
    }

    /// A wait is over. Gives what there is to be told about it, if it was long.
    pub(crate) fn over(
        &mut self,
        node: &Node,
        now: Instant,
    ) -> Option<(WaitCause, Duration, usize)> {
        let waited = now.saturating_duration_since(node.since);
        self.add(node.cause, waited);
        (waited >= self.notice).then_some((node.cause, waited, node.ahead))
    }
}

/// Beside as many who are gone as who wait: so that few are not looked through for each other.
const SPARE: usize = 16;
