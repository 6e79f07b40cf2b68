//! The task of a source: makes the token requests, and renews the token on time.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
};

use futures_util::FutureExt as _;
use tokio::{sync::Notify, time::timeout_at};

use super::shared::{Shared, Step};
use crate::{error::Kind, request::fly, state::Event};

/// Runs one flight after another, and sleeps between them.
///
/// It holds the shared part weakly, so it ends with the last handle, after the flight in progress.
pub(super) struct Task {
    shared: Weak<Shared>,
    number: u64,
    changed: Arc<Notify>,
}

// === impl Task ===

impl Task {
    pub(super) fn new(shared: &Arc<Shared>, number: u64) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            number,
            changed: Arc::clone(&shared.changed),
        }
    }

    pub(super) async fn run(self) {
        loop {
            // Created before the state is read, so that no flight is missed between the two.
            let changed = self.changed.notified();
            let Some(step) = self.step() else {
                return;
            };
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
                    drop(timeout_at(until, changed).await);
                }
                Step::Sleep(None) => changed.await,
            }
        }
    }

    fn step(&self) -> Option<Step> {
        self.shared.upgrade()?.step(self.number)
    }
}

/// If its runtime ends, the task is dropped at any of its awaits, and the next caller starts
/// another one.
impl Drop for Task {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lose(self.number);
        }
    }
}
