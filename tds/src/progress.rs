//! Progress of a job: a bar on a terminal, a plain line now and then otherwise.

use std::{
    fmt,
    io::{IsTerminal, stderr},
    time::Duration,
};

use crate::say::warn;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// Shows the progress: each update on a terminal, and a few lines a minute elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    told: Instant,
}

/// A number of bytes, formatted for people.
#[derive(Debug)]
pub(crate) struct Bytes(pub(crate) u64);

/// A duration, formatted for people.
#[derive(Debug)]
pub(crate) struct Clock(pub(crate) Duration);

// === impl Progress ===

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            // A narrow terminal wraps the text.
            if let Ok(style) = ProgressStyle::with_template("{bar:12} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            told: Instant::now(),
        }
    }

    /// Shows the progress. The second text is the cause of waits, on a separate line of a terminal.
    pub(crate) fn show(&mut self, done: u64, texts: impl FnOnce() -> (String, Option<String>)) {
        let line = |between| match texts() {
            (line, Some(waits)) => format!("{line}{between}waits for {waits}"),
            (line, None) => line,
        };
        if let Some(bar) = &self.bar {
            bar.set_message(line("\n"));
            bar.set_position(done);
        } else if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            warn(&line("; "));
        }
    }

    /// Prints a line that the bar does not overwrite.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| warn(line)),
            None => warn(line),
        }
    }

    pub(crate) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

// === impl Bytes ===

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ ..10_000 => write!(f, "{bytes} B"),
            bytes @ ..10_000_000 => write!(f, "{} kB", bytes / 1_000),
            bytes => write!(f, "{} MB", bytes / 1_000_000),
        }
    }
}

// === impl Clock ===

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ ..120 => write!(f, "{seconds} s"),
            seconds @ ..7_200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3_600),
        }
    }
}

/// Twelve lines a minute.
const EVERY: Duration = Duration::from_secs(5);
