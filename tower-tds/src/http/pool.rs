//! Idle connections that may have died silently: in a sleep, in a failover, or in a NAT that forgot
//! them.
//!
//! A call that ends without a response may have met such a connection. From then on, each
//! connection that has been idle since before that call began looks closed when the pool hands it
//! out. hyper has not taken the request by then, so the pool sends it on another connection.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::time::Instant;

/// Calls of one pool, numbered in the order in which they began.
#[derive(Default)]
pub(crate) struct Calls {
    last: AtomicU64,
    /// The last call that ended without a response.
    silent: AtomicU64,
    /// Calls without a response head yet, and their deadlines.
    waiting: Mutex<Vec<(u64, Option<Instant>)>>,
}

/// A call until its response head. Dropped before that, it counts as one without a response.
pub(crate) struct Call {
    calls: Arc<Calls>,
    number: u64,
    is_answered: bool,
}

/// Connection of the pool.
pub(crate) struct Pooled<T> {
    inner: T,
    state: ConnectionState,
}

/// Joins a connection with its response: hyper-util puts it into the extensions of each response.
#[derive(Clone)]
pub(crate) struct ConnectionState {
    calls: Arc<Calls>,
    /// For an idle connection, the last call that had begun when it became idle. For one in use,
    /// [`BUSY`] plus the last call that had begun when its request was written.
    state: Arc<AtomicU64>,
}

/// A response body that is not read to its end, so its connection is in use.
pub(crate) struct InUse {
    connection: ConnectionState,
    state: u64,
}

// === impl Calls ===

impl Calls {
    /// Begins a call. Earlier calls past their deadline count as calls without a response, although
    /// they are still completed in the background.
    pub(crate) fn begin(self: &Arc<Self>, deadline: Option<Instant>) -> Call {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        let mut waiting = self.waiting();
        if !waiting.is_empty() {
            let now = Instant::now();
            for (number, ends) in &*waiting {
                if ends.is_some_and(|ends| ends <= now) {
                    self.silent.fetch_max(*number, Relaxed);
                }
            }
        }
        waiting.push((number, deadline));
        Call {
            calls: Arc::clone(self),
            number,
            is_answered: false,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(u64, Option<Instant>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Call ===

impl Call {
    /// Notes that the response has come.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut waiting = self.calls.waiting();
        waiting.retain(|(number, _)| *number != self.number);
        if !self.is_answered {
            // Relaxed: a later call reaches its connection through a channel, which orders this.
            self.calls.silent.fetch_max(self.number, Relaxed);
        }
    }
}

// === impl Pooled ===

impl<T> Pooled<T> {
    pub(crate) fn new(inner: T, calls: &Arc<Calls>) -> Self {
        let state = AtomicU64::new(calls.last.load(Relaxed));
        Self {
            inner,
            state: ConnectionState {
                calls: Arc::clone(calls),
                state: Arc::new(state),
            },
        }
    }
}

impl<T: Read + Unpin> Read for Pooled<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.is_doubtful() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: Write + Unpin> Write for Pooled<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.state.begin();
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T: Connection> Connection for Pooled<T> {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.state.clone())
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    /// Whether the connection has been idle since before the start of a call that had no response.
    fn is_doubtful(&self) -> bool {
        self.state.load(Relaxed) < self.calls.silent.load(Relaxed)
    }

    /// Notes that a request is written. Each request sets a state of its own, because it belongs to
    /// a new call.
    fn begin(&self) {
        if self.state.load(Relaxed) < BUSY {
            let last = self.calls.last.load(Relaxed);
            self.state.store(BUSY + last, Relaxed);
        }
    }

    pub(crate) fn in_use(self) -> InUse {
        InUse {
            state: self.state.load(Relaxed),
            connection: self,
        }
    }
}

// === impl InUse ===

impl Drop for InUse {
    fn drop(&mut self) {
        let connection = &self.connection;
        let last = connection.calls.last.load(Relaxed);
        // A body that is kept after its end may be dropped after the next request was written. The
        // state is then another one, and stays.
        let _ended = connection
            .state
            .compare_exchange(self.state, last, Relaxed, Relaxed);
    }
}

/// Larger than any number of calls.
const BUSY: u64 = 1 << 63;

#[cfg(test)]
mod tests;
