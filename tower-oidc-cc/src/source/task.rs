//! The task of a source: makes the token requests, and renews the token on time.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
};

use futures_util::FutureExt as _;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::shared::Shared;
use crate::{
    error::Kind,
    request::{Fetch, fly},
    state::{Current, Event},
};

/// Runs one flight after another, and sleeps between them.
///
/// It holds the shared part weakly, so it ends with the last handle, after the flight in progress.
pub(super) struct Task {
    shared: Weak<Shared>,
    number: u64,
    begun: watch::Receiver<u64>,
}

/// What the task does next.
pub(super) enum Step {
    /// Run the flight of this number.
    Fetch(u64, Arc<dyn Fetch>, Option<Current>),
    /// Sleep until this instant, or until a flight begins.
    Sleep(Option<Instant>),
}

// === impl Task ===

impl Task {
    pub(super) fn new(shared: Weak<Shared>, number: u64, begun: watch::Receiver<u64>) -> Self {
        Self {
            shared,
            number,
            begun,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(step) = self.step() {
            match step {
                Step::Fetch(flight, fetch, current) => {
                    let flown = AssertUnwindSafe(fly(&*fetch, current)).catch_unwind();
                    let event = match flown.await {
                        Ok(Ok(issued)) => Event::Fetched(issued),
                        Ok(Err(error)) => Event::Failed(error),
                        Err(_) => Event::Failed(Kind::Panicked.into()),
                    };
                    if let Some(shared) = self.shared.upgrade() {
                        shared.settle(flight, event);
                    }
                }
                Step::Sleep(Some(until)) => {
                    drop(timeout_at(until, self.begun.changed()).await);
                }
                Step::Sleep(None) => drop(self.begun.changed().await),
            }
        }
    }

    fn step(&self) -> Option<Step> {
        self.shared.upgrade()?.step(self.number)
    }
}

/// A runtime that ends drops the task at any of its awaits. The next caller starts another one.
impl Drop for Task {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lose(self.number);
        }
    }
}
