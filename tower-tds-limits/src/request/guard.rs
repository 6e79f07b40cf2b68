use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use http::Extensions;
use tokio::time::Instant;

use crate::clock;

/// Shows whether the head of a request was written or dropped unsent, over hyper's HTTP/1 client.
///
/// A guard in the request's extensions records it. Such a connection drops the extensions when
/// it has written the head. The drop of a call whose request waits for a connection drops them as
/// well, on the thread that drops the call. Only this case means *unsent*. A drop on another thread
/// does not, because a connection may be writing the head there.
#[derive(Debug, Clone)]
pub(super) struct Watch(Arc<Mutex<Head>>);

/// Lies in the extensions of a request, and records its own drop.
#[derive(Debug)]
struct Guard(Watch);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    // ## Held => (Sent | Unsent)
    Held {
        /// Whether the time of the sending is wanted.
        is_timed: bool,
        /// The thread that drops the call, if one does.
        dropped_by: Option<ThreadId>,
    },
    Sent(Option<Instant>),
    Unsent,
}

// === impl Watch ===

impl Watch {
    /// Puts a guard into the extensions of a request.
    pub(super) fn insert(extensions: &mut Extensions, is_timed: bool) -> Self {
        let head = Head::Held {
            is_timed,
            dropped_by: None,
        };
        let watch = Self(Arc::new(Mutex::new(head)));
        extensions.insert(Guard(watch.clone()));
        watch
    }

    /// When the head was sent, if it was and the time is wanted.
    pub(super) fn sent_at(&self) -> Option<Instant> {
        match *self.head() {
            Head::Sent(at) => at,
            Head::Held { .. } | Head::Unsent => None,
        }
    }

    /// Whether the head was neither written nor dropped.
    pub(super) fn is_held(&self) -> bool {
        matches!(*self.head(), Head::Held { .. })
    }

    /// Whether the request is known to be unsent.
    pub(super) fn is_unsent(&self) -> bool {
        *self.head() == Head::Unsent
    }

    /// Drops the call by `drop_call`. Returns whether its request is known to be unsent.
    pub(super) fn drop_call(&self, drop_call: impl FnOnce()) -> bool {
        if let Head::Held { dropped_by, .. } = &mut *self.head() {
            *dropped_by = Some(thread::current().id());
        }
        drop_call();
        self.is_unsent()
    }

    /// Records the end of the head: sent, unless the thread that drops the call dropped it.
    fn end(&self, is_copied: bool) {
        let mut head = self.head();
        if let Head::Held {
            is_timed,
            dropped_by,
        } = *head
        {
            let is_dropped =
                !is_copied && dropped_by.is_some_and(|by| by == thread::current().id());
            *head = if is_dropped {
                Head::Unsent
            } else {
                Head::Sent(is_timed.then(clock::now))
            };
        }
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Guard ===

/// A copied request counts as sent, because the copy can be sent at any time.
impl Clone for Guard {
    fn clone(&self) -> Self {
        self.0.end(true);
        Self(self.0.clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end(false);
    }
}
