//! Circuit breaker of a bulk download: while the service fails, one file at a time probes, and no
//! other attempt begins.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{self, Notify},
    time::{Instant, sleep_until},
};

use crate::{outage::Outage, output::rough};

/// Opens after failed attempts without a success, and closes when the service answers.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// How long the breaker may be open before the job ends. With zero it never opens.
    patience: Duration,
    /// Guards the failures. It is never held over an await.
    state: Mutex<State>,
    /// Held by the file that probes. The lock is fair, so each probe is of another file, and one
    /// broken path cannot prolong the outage of the others.
    turn: sync::Mutex<()>,
    /// Wakes the next probe early when an older attempt shows that the outage is over.
    closed: Notify,
}

/// Failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct State {
    has_success: bool,
    attempts: u32,
    files: BTreeSet<String>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    outage: Outage,
    probe_at: Instant,
    pause: Duration,
}

/// Right to make an attempt. A probe holds its turn in it.
#[derive(Debug)]
pub(crate) struct Pass<'a>(Option<sync::MutexGuard<'a, ()>>);

// === impl Breaker ===

impl Breaker {
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            patience,
            state: Mutex::default(),
            turn: sync::Mutex::default(),
            closed: Notify::new(),
        }
    }

    pub(crate) const fn is_used(&self) -> bool {
        !self.patience.is_zero()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().open.is_some()
    }

    /// Waits until an attempt may be made.
    pub(crate) async fn pass(&self) -> Pass<'_> {
        if !self.is_open() {
            return Pass(None);
        }
        let turn = self.turn.lock().await;
        let closed = self.closed.notified();
        let probe_at = self.state().open.as_ref().map(|open| open.probe_at);
        let Some(probe_at) = probe_at else {
            return Pass(None);
        };
        tokio::select! {
            () = closed => Pass(None),
            () = sleep_until(probe_at) => Pass(Some(turn)),
        }
    }

    /// Records an answer of the service. Returns a line if an outage is over.
    pub(crate) fn answered(&self, now: Instant) -> Option<String> {
        let line = self.state().answered(now);
        self.closed.notify_waiters();
        line
    }

    /// Records a failed attempt of a file. Returns whether the breaker is open, and a line if it
    /// has just opened, or a minute has passed.
    pub(crate) fn failed(
        &self,
        file: &str,
        pass: &Pass<'_>,
        line: &str,
        now: Instant,
    ) -> (bool, Option<String>) {
        if !self.is_used() {
            return (false, None);
        }
        let mut state = self.state();
        let due = state.failed(file, pass.0.is_some(), line, now);
        let at_most = rough(self.patience);
        let due = due.map(|line| {
            format!("{line}; one file is retried and the others wait, for up to {at_most}")
        });
        (state.open.is_some(), due)
    }

    /// Returns the last line of an outage that has lasted too long.
    pub(crate) fn look(&self, now: Instant) -> Option<String> {
        let state = self.state();
        let outage = &state.open.as_ref()?.outage;
        let is_over = outage.lasted(now) >= self.patience;
        is_over.then(|| format!("{}; the job ends", outage.line(now)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    pub(crate) fn answered(&mut self, now: Instant) -> Option<String> {
        let open = self.open.take();
        *self = Self {
            has_success: true,
            ..Self::default()
        };
        Some(open?.outage.over(now, "the service answers"))
    }

    /// Returns a line if an outage begins, which takes three failed attempts in a row. Once the
    /// service has answered, they must be of three files, because a single path may be broken.
    pub(crate) fn failed(
        &mut self,
        file: &str,
        is_probe: bool,
        line: &str,
        now: Instant,
    ) -> Option<String> {
        if let Some(open) = &mut self.open {
            if is_probe {
                open.pause = (open.pause * 2).min(LONGEST);
                open.probe_at = now + open.pause;
            }
            return open.outage.failed(line, now);
        }
        self.attempts += 1;
        self.files.insert(file.to_owned());
        let files = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let counted = if self.has_success {
            files
        } else {
            self.attempts
        };
        if counted < ROW {
            return None;
        }
        let mut outage = Outage::begin(now);
        let begun = outage.failed(line, now);
        self.open = Some(Open {
            outage,
            probe_at: now + FIRST,
            pause: FIRST,
        });
        begun
    }

    /// When the next probe is due.
    #[cfg(test)]
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.probe_at)
    }
}

const ROW: u32 = 3;

const FIRST: Duration = Duration::from_secs(1);

/// Longest time between two probes.
const LONGEST: Duration = Duration::from_secs(30);
