//! A log in memory.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use tracing::{Dispatch, Subscriber, subscriber::DefaultGuard};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sets the subscriber of this thread.
///
/// With a single dispatcher, tracing caches the interest of the first thread at a callsite for all
/// threads. A second dispatcher prevents that.
pub(crate) fn listen(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static SECOND: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&SECOND);
    let listening = tracing::subscriber::set_default(subscriber);
    tracing::callsite::rebuild_interest_cache();
    listening
}
