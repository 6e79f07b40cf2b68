//! A log in memory.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use tracing::{Dispatch, subscriber::DefaultGuard};
use tracing_subscriber::{filter::LevelFilter, fmt::format::FmtSpan};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Notes what this thread logs, and its spans at their ends.
    ///
    /// With a single dispatcher, tracing caches the interest of the first thread at a callsite for all
    /// threads. A second dispatcher prevents that.
    pub(crate) fn listen(level: LevelFilter) -> (Self, DefaultGuard) {
        static SECOND: LazyLock<Dispatch> =
            LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&SECOND);
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(move || writer.clone())
            .finish();
        let listening = tracing::subscriber::set_default(subscriber);
        tracing::callsite::rebuild_interest_cache();
        (log, listening)
    }

    pub(crate) fn text(&self) -> String {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The logged events, without the ends of spans.
    pub(crate) fn events(&self) -> String {
        let is_event = |line: &&str| !line.ends_with(": close\n");
        self.text().split_inclusive('\n').filter(is_event).collect()
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
