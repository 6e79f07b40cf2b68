//! When a job cannot succeed any more, told from failures that others need not meet.

use std::time::Duration;

use tokio::time::Instant;
use tower_tds::{Error, Kind};

use crate::exit::Exit;

/// Counts the failures that came without a success between them.
#[derive(Debug)]
pub(crate) struct Ending {
    credentials: u32,
    unreachable: u32,
    /// How many of the latter are the end; none for jobs that outlast an outage.
    outage: Option<u32>,
    wait_quota: bool,
    /// When a pause without a success ends the job.
    patience: Option<Instant>,
}

// === impl Ending ===

impl Ending {
    pub(crate) const fn new(outage: Option<u32>, wait_quota: bool) -> Self {
        Self {
            credentials: 0,
            unreachable: 0,
            outage,
            wait_quota,
            patience: None,
        }
    }

    pub(crate) const fn succeeded(&mut self) {
        self.credentials = 0;
        self.unreachable = 0;
        self.patience = None;
    }

    /// Bytes come, if no whole file yet.
    pub(crate) const fn progressed(&mut self) {
        self.patience = None;
    }

    /// By what the job ends if the key is refused for so long now, and with nothing between. A pause that the
    /// service told, of a minute at most, is waited for; after one that it did not tell comes the next.
    pub(crate) fn paused(&mut self, pause: Option<Duration>, now: Instant) -> Option<Exit> {
        let first = pause.and_then(|pause| now.checked_add(pause)?.checked_add(PATIENCE));
        self.patience = self.patience.or(first);
        let over = !self.wait_quota && self.patience.is_some_and(|end| end <= now);
        over.then_some(Exit::Quota)
    }

    /// By what the job ends after this one, if it does.
    pub(crate) fn failed(&mut self, error: &Error) -> Option<Exit> {
        let exit = Exit::of(error);
        let over = match exit {
            // A window of a minute is a rate, and not the end: `paused` tells what is.
            Exit::Quota => !self.wait_quota && error.kind() != Kind::Throttled,
            // The role is missing for some data, and there may be others.
            Exit::Credentials if error.kind() != Kind::MissingRole => {
                self.credentials = self.credentials.saturating_add(1);
                self.credentials >= REFUSED || error.ends_the_job()
            }
            Exit::Unreachable => {
                self.unreachable = self.unreachable.saturating_add(1);
                let outage = self.outage.is_some_and(|most| self.unreachable >= most);
                outage || error.ends_the_job()
            }
            Exit::Whole | Exit::SomeFailed | Exit::Usage | Exit::Credentials => {
                error.ends_the_job()
            }
        };
        over.then_some(exit)
    }
}

/// Each is a token that was new and was refused, so that no further one helps.
const REFUSED: u32 = 3;

/// With the first pause, of two seconds, it is nine.
const PATIENCE: Duration = Duration::from_secs(7);
