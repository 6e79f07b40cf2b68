//! The way in which an idle socket is asked to leave.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    task::Waker,
};

use super::sync::{AtomicBool, Mutex};

/// What a socket and the limit share about it.
///
/// Asking and taking back happen under the gate's lock; only the socket itself looks without it.
#[derive(Debug, Default)]
pub(crate) struct Exit {
    asked: AtomicBool,
    /// Who reads from the socket and waits. Guards nothing else, and no waker runs under it.
    reader: Mutex<Option<Waker>>,
}

// === impl Exit ===

impl Exit {
    pub(super) fn ask(&self) {
        // Release, with the acquire in `is_asked`: whoever reads the end sees why.
        self.asked.store(true, Ordering::Release);
    }

    pub(super) fn take_back(&self) -> bool {
        // Nothing is published: the socket itself takes it back.
        self.asked.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_asked(&self) -> bool {
        // Acquire, with the release in `ask`.
        self.asked.load(Ordering::Acquire)
    }

    pub(super) fn set_reader(&self, waker: &Waker) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *reader {
            Some(reader) if reader.will_wake(waker) => {}
            reader => *reader = Some(waker.clone()),
        }
    }

    pub(super) fn take_reader(&self) -> Option<Waker> {
        self.reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn wake_reader(&self) {
        if let Some(reader) = self.take_reader() {
            reader.wake();
        }
    }
}

/// Lets those who were asked to leave look; called without any lock held.
pub(super) fn wake_readers(asked: Vec<Arc<Exit>>) {
    for exit in asked {
        exit.wake_reader();
    }
}
