//! One socket's place in its limit, from before `connect` until its server has closed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use tokio::time::Instant;

use crate::{
    connection::{
        sockets::{Connections, SocketKey},
        usage::{Head, Mark, Rest, Usage},
    },
    queue::{Limit, Queue},
};

/// A grant. Dropping it gives the place to the next.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    queue: Arc<Queue<Connections>>,
    /// There since the connecting came to a socket.
    key: Option<SocketKey>,
}

/// An open socket's.
#[derive(Debug, Clone)]
pub(super) struct Place {
    queue: Arc<Queue<Connections>>,
    key: SocketKey,
    asked: Arc<AtomicBool>,
}

// === impl ConnectionPermit ===

impl ConnectionPermit {
    /// That of a connect that begins now.
    pub(super) fn connecting(queue: &Arc<Queue<Connections>>) -> Self {
        Self {
            queue: Arc::clone(queue),
            key: None,
        }
    }

    /// The connecting came to a socket, which is this while it carries nothing.
    pub(super) fn opened(&mut self, unused: Rest) -> Place {
        let asked = Arc::<AtomicBool>::default();
        let shared = Arc::clone(&asked);
        let opened = |connections: &mut Connections, now| connections.opened(unused, shared, now);
        let (key, leaving) = self.queue.update_now(opened);
        wake(leaving);
        self.key = Some(key);
        Place {
            queue: Arc::clone(&self.queue),
            key,
            asked,
        }
    }

    /// The socket has ended on this side.
    pub(super) fn ended(&mut self) {
        if let Some(key) = self.key {
            let ended = |connections: &mut Connections, now| connections.ended(key, now);
            drop(self.queue.update_now(ended));
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let key = self.key;
        // What its reader's waker drops may look at the limit.
        drop(self.queue.update(|connections| match key {
            Some(key) => connections.closed(key),
            None => {
                connections.withdraw(());
                None
            }
        }));
    }
}

// === impl Place ===

impl Place {
    /// Changes what is known of the socket's use, and has the limit look if that is news.
    pub(super) fn told<R>(&self, event: impl FnOnce(&mut Usage) -> R) -> Option<R> {
        let key = self.key;
        let changed = self
            .queue
            .read(|connections| connections.change(key, event));
        let (told, news) = changed?;
        if news {
            self.settle();
        }
        Some(told)
    }

    /// A head is here, of an answer that was taken out of the pool at `at`.
    pub(super) fn answered(&self, head: Head, at: Option<Mark>) {
        let key = self.key;
        if self
            .queue
            .read(|connections| connections.head(key, head, at))
        {
            self.settle();
        }
    }

    /// Whether the reader is to be given the end of the stream; if not, it is woken for it. `known` is whom the
    /// limit would wake, by the call before: while that is the same, only one that was asked takes the lock.
    pub(super) fn is_to_leave(&self, known: &mut Option<Waker>, reader: &Waker) -> bool {
        let is_known = matches!(known, Some(known) if known.will_wake(reader));
        if is_known && !self.asked.load(Ordering::Acquire) {
            return false;
        }
        let key = self.key;
        let (leaves, replaced) = self
            .queue
            .read(|connections| connections.is_to_leave(key, reader));
        // What a waker drops may look here.
        drop(replaced);
        *known = (!leaves).then(|| reader.clone());
        leaves
    }

    /// The body of an answer has ended.
    pub(super) fn ended(&self) {
        self.told(Usage::ended);
    }

    fn settle(&self) {
        let key = self.key;
        let settle = |connections: &mut Connections, now: Instant| connections.settle(key, now);
        wake(self.queue.update_now(settle));
    }
}

/// Lets those who were asked to leave look; called without any lock held.
pub(super) fn wake(readers: impl IntoIterator<Item = Waker>) {
    readers.into_iter().for_each(Waker::wake);
}
