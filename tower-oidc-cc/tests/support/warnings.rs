//! A subscriber that keeps the events at `warn`.

use std::sync::{Arc, Mutex};

use tracing::{Dispatch, Level, subscriber::DefaultGuard};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

/// Its drop ends the recording.
#[expect(dead_code, reason = "both are kept for their drop")]
pub(crate) struct Heard(DefaultGuard, Dispatch);

// === impl Warnings ===

impl Warnings {
    /// Records the events of this thread.
    pub(crate) fn heard(&self) -> Heard {
        // With a single dispatcher, an event that another thread meets first is never recorded.
        let other = Dispatch::new(tracing_subscriber::registry());
        let subscriber = tracing_subscriber::registry().with(self.clone());
        Heard(tracing::subscriber::set_default(subscriber), other)
    }

    /// The number of warnings that contain `text`.
    pub(crate) fn of(&self, text: &str) -> usize {
        let told = self.0.lock().unwrap();
        told.iter().filter(|line| line.contains(text)).count()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::WARN {
            self.0.lock().unwrap().push(format!("{event:?}"));
        }
    }
}
