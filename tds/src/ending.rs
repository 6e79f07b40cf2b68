//! The end of a job that cannot succeed any more, told from failures that others need not meet.

use std::time::Duration;

use tokio::time::Instant;
use tower_tds::{Error, Kind, layers::token::Health};

use crate::exit::Exit;

/// Counts the failures that came without a success between them.
#[derive(Debug)]
pub(crate) struct Ending {
    credentials: u32,
    /// The newest token when a call last succeeded; zero before the first.
    worked: u64,
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
            worked: 0,
            unreachable: 0,
            outage,
            wait_quota,
            patience: None,
        }
    }

    pub(crate) fn succeeded(&mut self, token: &Health) {
        self.credentials = 0;
        self.worked = token.generation();
        self.unreachable = 0;
        self.patience = None;
    }

    /// Bytes come, if no whole file yet.
    pub(crate) const fn progressed(&mut self) {
        self.patience = None;
    }

    /// By what the job ends if the key is refused for so long now, and with nothing between. A pause that the
    /// service told, of a minute at most, is waited for; after one that it did not tell comes the next. None is
    /// left once a call that tried was served; while its head is awaited, nobody knows.
    pub(crate) fn paused(&mut self, pause: Option<Duration>, now: Instant) -> Option<Exit> {
        let Some(pause) = pause else {
            self.patience = None;
            return None;
        };
        let patience = pause.saturating_add(TRY).max(PATIENCE);
        let first = now.checked_add(patience);
        self.patience = self.patience.or(first);
        let refused_again = !pause.is_zero() && self.patience.is_some_and(|end| end <= now);
        (refused_again && !self.wait_quota).then_some(Exit::Quota)
    }

    /// By what the job ends after this one, if it does.
    pub(crate) fn failed(&mut self, error: &Error, token: &Health) -> Option<Exit> {
        // The next token may be good, and it is its endpoint that keeps it back.
        let exit = if is_of_the_token(error) && token.last_error().is_some() {
            Exit::Unreachable
        } else {
            Exit::of(error)
        };
        let over = match exit {
            // A window of a minute is a rate, and not the end: `paused` tells what is.
            Exit::Quota => !self.wait_quota && error.kind() != Kind::Throttled,
            // The role is missing for some data, and there may be others.
            Exit::Credentials if error.kind() != Kind::MissingRole => {
                // What began before the newest token came says nothing of that one.
                let began = error.elapsed().unwrap_or_default();
                let is_of_the_newest = token.last_success().is_none_or(|came| began < came);
                self.credentials += u32::from(is_of_the_newest);
                let is_new = token.generation() > self.worked;
                (self.credentials >= REFUSED && is_new) || error.ends_the_job()
            }
            Exit::Unreachable => {
                self.unreachable += 1;
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

/// Whether another token may be served where this one was refused.
pub(crate) fn is_of_the_token(error: &Error) -> bool {
    matches!(error.kind(), Kind::InvalidToken | Kind::Unauthorized)
}

/// Each by a token that has never worked, so that no further one helps.
const REFUSED: u32 = 3;

/// With the second that a start waits it is less than ten.
const PATIENCE: Duration = Duration::from_secs(8);

/// For the call that tries after a pause.
const TRY: Duration = Duration::from_secs(2);
