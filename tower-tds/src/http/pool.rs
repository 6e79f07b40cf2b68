//! Idle connections to one host: one list, and one rule that ends them.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use hyper::client::conn::http1::SendRequest;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

/// Idle connections of one host.
pub(crate) struct Pool<B> {
    /// Locked for a few moves, and never across an `.await`.
    list: Mutex<List<B>>,
    /// Notified for each connection that came back.
    pub(super) returned: Notify,
    /// Whether the peer of its connections is the service, and not a proxy or what a connector of the
    /// user's makes.
    pub(super) is_direct: bool,
    /// Moving average of the waits for a response head, in microseconds. Zero before the first.
    usual_wait: AtomicU64,
}

struct List<B> {
    /// The one that became idle last is at the end, and is taken first.
    idle: Vec<Idle<B>>,
    /// Dropped when the pool is closed, which ends the connects that no call awaits. Without it
    /// nothing is kept.
    open: Option<watch::Sender<()>>,
}

/// A connection that is ready for a request.
pub(super) struct Idle<B> {
    pub(super) sender: SendRequest<B>,
    pub(super) home: Home<B>,
    since: Instant,
}

/// Leads to the task of a connection.
pub(super) type Home<B> = Arc<Mutex<AtHome<B>>>;

/// State that a call shares with the task of its connection.
pub(super) struct AtHome<B> {
    /// On its way back to the task.
    pub(super) sender: Option<SendRequest<B>>,
    pub(super) task: Option<Waker>,
    /// When it was last put into the list.
    pub(super) idle_since: Instant,
    /// While a call waits for its response head on a connection that had been idle.
    pub(super) waits: Option<Waits>,
}

/// Wait for a response head, while the network may have gone silent.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    pub(super) since: Instant,
    /// From then on, what has been idle since before it is closed.
    pub(super) until: Instant,
}

// === impl Pool ===

impl<B> Pool<B> {
    /// Creates a pool, which closes each connection after its call unless it `keeps` idle ones.
    pub(crate) fn new(keeps: bool, is_direct: bool) -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::new(List {
                idle: Vec::new(),
                open: keeps.then(|| watch::Sender::new(())),
            }),
            returned: Notify::new(),
            is_direct,
            usual_wait: AtomicU64::new(0),
        })
    }

    /// Closes idle connections and connects that no call awaits. One in use ends with its body.
    pub(crate) fn close(&self) {
        let mut list = self.list();
        let closed = (list.open.take(), mem::take(&mut list.idle));
        drop(list);
        drop(closed);
    }

    /// Closes what has been idle since before `then`.
    pub(super) fn close_idle(&self, then: Instant) {
        let mut list = self.list();
        let end = list.idle.partition_point(|idle| idle.since <= then);
        let closed: Vec<_> = list.idle.drain(..end).collect();
        drop(list);
        drop(closed);
    }

    /// Takes the connection that became idle last. One that is not ready has ended.
    pub(super) fn take(&self) -> Option<Idle<B>> {
        // Dropped after the lock is released.
        let mut ended = Vec::new();
        let mut list = self.list();
        loop {
            let idle = list.idle.pop()?;
            if idle.sender.is_ready() {
                return Some(idle);
            }
            ended.push(idle);
        }
    }

    /// Puts a connection back that is ready for a request.
    pub(super) fn put(&self, sender: SendRequest<B>, home: Home<B>) {
        let since = Instant::now();
        lock(&home).idle_since = since;
        let mut list = self.list();
        if list.open.is_some() {
            list.idle.push(Idle {
                sender,
                home,
                since,
            });
            drop(list);
            self.returned.notify_one();
        }
    }

    /// Returns how long a response head may take on a connection that was idle, before those that
    /// have been idle for longer are closed.
    pub(super) fn longest_wait(&self) -> Duration {
        // Relaxed: an older average is as good.
        let usual = Duration::from_micros(self.usual_wait.load(Relaxed));
        usual.saturating_mul(4).max(SHORT_WAIT)
    }

    /// Makes the time of a response head an eighth of the average.
    pub(super) fn learn(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let usual = match self.usual_wait.load(Relaxed) {
            0 => took,
            usual => usual - usual / 8 + took / 8,
        };
        self.usual_wait.store(usual, Relaxed);
    }

    /// Ends when the pool is closed, unless it keeps nothing.
    pub(super) fn until_closed(&self) -> Option<watch::Receiver<()>> {
        self.list().open.as_ref().map(watch::Sender::subscribe)
    }

    fn list(&self) -> MutexGuard<'_, List<B>> {
        lock(&self.list)
    }
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fixed half second costs .33 connects a call under bursts of slow answers, and a fixed second
/// comes too late for a caller a second later. So this is only the least of the wait, whose usual
/// length is four times the average.
const SHORT_WAIT: Duration = Duration::from_millis(500);
