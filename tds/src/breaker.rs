//! Circuit breaker of a bulk download: while the service fails, one file at a time probes, and no
//! other attempt begins.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use tokio::{
    sync::{self, Notify},
    time::{Instant, sleep_until},
};

use crate::{lock::lock, outage::Outage, output::rough};

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
struct State {
    has_success: bool,
    attempts: usize,
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
        lock(&self.state).open.is_some()
    }

    /// Waits until an attempt may be made.
    pub(crate) async fn pass(&self) -> Pass<'_> {
        if !self.is_open() {
            return Pass(None);
        }
        let turn = self.turn.lock().await;
        let closed = self.closed.notified();
        let open = lock(&self.state).open.as_ref().map(|open| open.probe_at);
        let Some(probe_at) = open else {
            return Pass(None);
        };
        tokio::select! {
            () = closed => Pass(None),
            () = sleep_until(probe_at) => Pass(Some(turn)),
        }
    }

    /// Records an answer of the service. Returns a line if an outage is over.
    pub(crate) fn answered(&self) -> Option<String> {
        let answered = State {
            has_success: true,
            ..State::default()
        };
        let before = std::mem::replace(&mut *lock(&self.state), answered);
        self.closed.notify_waiters();
        let outage = before.open?.outage;
        Some(outage.over(Instant::now(), "the service answers"))
    }

    /// Records a failed attempt of a file. Returns whether the breaker is open, and a line if it
    /// has just opened, or a minute has passed.
    ///
    /// It opens after three failed attempts in a row. Once the service has answered, they must be of
    /// three files, because a single path may be broken.
    pub(crate) fn failed(&self, file: &str, pass: &Pass<'_>, line: &str) -> (bool, Option<String>) {
        if !self.is_used() {
            return (false, None);
        }
        let now = Instant::now();
        let state = &mut *lock(&self.state);
        let due = if let Some(open) = &mut state.open {
            if pass.0.is_some() {
                open.pause = (open.pause * 2).min(LONGEST);
                open.probe_at = now + open.pause;
            }
            open.outage.failed(line, now)
        } else {
            state.attempts += 1;
            state.files.insert(file.to_owned());
            let failed = match state.has_success {
                true => state.files.len(),
                false => state.attempts,
            };
            if failed < ROW {
                return (false, None);
            }
            let mut outage = Outage::begin(now);
            let begun = outage.failed(line, now);
            state.open = Some(Open {
                outage,
                probe_at: now + FIRST,
                pause: FIRST,
            });
            begun
        };
        let at_most = rough(self.patience);
        let due = due.map(|line| {
            format!("{line}; one file is retried and the others wait, for up to {at_most}")
        });
        (true, due)
    }

    /// Returns the last line of an outage that has lasted too long.
    pub(crate) fn look(&self, now: Instant) -> Option<String> {
        let state = lock(&self.state);
        let outage = &state.open.as_ref()?.outage;
        let is_over = outage.lasted(now) >= self.patience;
        is_over.then(|| format!("{}; the job ends", outage.line(now)))
    }
}

const ROW: usize = 3;

const FIRST: Duration = Duration::from_secs(1);

/// Longest time between two probes.
const LONGEST: Duration = Duration::from_secs(30);
