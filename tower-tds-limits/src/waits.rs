//! The causes of waits, and how long calls have waited for each.

use std::{cell::RefCell, fmt, time::Duration};

use tokio::time::Instant;

use crate::{events, queue::Node};

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

/// A wait that is over.
#[derive(Debug)]
#[must_use = "whoever listens is told, once the lock is released"]
pub(crate) struct Over {
    cause: WaitCause,
    waited: Duration,
    /// How many had been before it.
    ahead: usize,
}

/// Hears of the waits of its thread until it is dropped, and whoever listened before hears again then.
struct Listener(Heard);

type Heard = Option<Vec<(WaitCause, Duration)>>;

/// In the order of [`WaitCause::ALL`].
pub(crate) type ByCause = [Waited; WaitCause::ALL.len()];

/// What was waited for in one queue.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    by_cause: ByCause,
}

// === impl WaitCause ===

impl WaitCause {
    /// All of them, in the order of their documentation.
    pub(crate) const ALL: [Self; 8] = [
        Self::Window,
        Self::Counter,
        Self::Bucket,
        Self::Pace,
        Self::InFlight,
        Self::Silence,
        Self::Pause,
        Self::Connection,
    ];

    /// Does something, and gives the waits that came to their end by it, in this thread: to a permit, or because
    /// whoever waited has gone.
    ///
    /// For who polls a call and wants to know what that has waited for, or drops one. A wait without any length is none.
    /// What goes on in another task is not heard: a connect that nobody waits for any more, say. Of two who listen, one
    /// inside the other, the inner one hears.
    ///
    /// # Examples
    /// ```
    /// use std::{future::{Future, poll_fn}, pin::Pin, time::Duration};
    /// use tower_tds_limits::WaitCause;
    ///
    /// async fn told<F: Future>(call: F) -> (F::Output, Duration) {
    ///     let (mut call, mut paused) = (std::pin::pin!(call), Duration::ZERO);
    ///     let answer = poll_fn(|cx| {
    ///         let (polled, waits) = WaitCause::heard(|| call.as_mut().poll(cx));
    ///         let pauses = waits.into_iter().filter(|(cause, _)| *cause == WaitCause::Pause);
    ///         paused += pauses.map(|(_, waited)| waited).sum();
    ///         polled
    ///     });
    ///     (answer.await, paused)
    /// }
    /// # drop(told(async {}));
    /// ```
    pub fn heard<T>(does: impl FnOnce() -> T) -> (T, Vec<(Self, Duration)>) {
        let listener = Listener(swap(Some(Vec::new())));
        let done = does();
        let heard = swap(None);
        drop(listener);
        (done, heard.unwrap_or_default())
    }

    /// A short name that stays the same: for a label, or a field.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Counter => "counter",
            Self::Bucket => "bucket",
            Self::Pace => "pace",
            Self::InFlight => "in_flight",
            Self::Silence => "silence",
            Self::Pause => "pause",
            Self::Connection => "connection",
        }
    }

    /// Whoever listens in this thread hears of a wait that is over.
    pub(crate) fn tell(self, waited: Duration) {
        if waited.is_zero() {
            return;
        }
        let hear = |heard: &mut Vec<_>| heard.push((self, waited));
        // A call may be dropped by the end of its thread, where nobody listens any more.
        let _told = HEARD.try_with(|heard| heard.borrow_mut().as_mut().map(hear));
    }

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
        })
    }
}

// === impl Waited ===

impl Waited {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }
}

// === impl Waits ===

impl Waits {
    /// Adds what was waited for here.
    pub(crate) fn add_to(&self, all: &mut ByCause) {
        for (all, here) in all.iter_mut().zip(self.by_cause) {
            all.add(here);
        }
    }

    /// One more was waited for.
    fn add(&mut self, cause: WaitCause, waited: Duration) {
        if let Some(all) = self.by_cause.get_mut(cause.place()) {
            all.add(Waited {
                count: 1,
                total: waited,
                longest: waited,
            });
        }
    }

    /// A wait is over.
    pub(crate) fn over(&mut self, node: &Node, now: Instant) -> Over {
        let waited = now.saturating_duration_since(node.since);
        self.add(node.cause, waited);
        Over {
            cause: node.cause,
            waited,
            ahead: node.ahead,
        }
    }
}

// === impl Over ===

impl Over {
    /// It came to a permit.
    pub(crate) fn passed(self) {
        if self.waited >= LONG {
            events::waited(self.cause, self.waited, self.ahead);
        }
        self.gone();
    }

    /// It was given up, or there was a permit.
    pub(crate) fn gone(self) {
        self.cause.tell(self.waited);
    }
}

// === impl Listener ===

impl Drop for Listener {
    fn drop(&mut self) {
        swap(self.0.take());
    }
}

/// At the end of a thread nobody listens.
fn swap(heard: Heard) -> Heard {
    let before = HEARD.try_with(|before| before.replace(heard));
    before.unwrap_or_default()
}

/// A hundred quick answers' time: an event reports a wait of this length.
const LONG: Duration = Duration::from_millis(100);

thread_local! {
    /// The waits that are over, where somebody listens. Nothing is called while it is borrowed.
    static HEARD: RefCell<Heard> = const { RefCell::new(None) };
}
