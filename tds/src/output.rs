//! Output of the program: data, messages, the log, and the progress of a job.

use std::{
    collections::BTreeSet,
    io::{self, Write, stderr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use tracing::level_filters::LevelFilter;

use crate::exit::{Exit, Failure};

/// Writes to the standard output. Returns whether it has a reader: `head` closes the pipe when it
/// has read enough.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<bool, Failure> {
    copy(data.as_ref()).map_err(|error| Failure::new(Exit::SomeFailed, error.to_string()))
}

/// As [`print`], for data of any length.
pub(crate) fn copy(mut data: impl io::Read) -> io::Result<bool> {
    let mut out = io::stdout();
    match io::copy(&mut data, &mut out).and_then(|_| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(io::Error::other(format!("the standard output: {error}"))),
    }
}

/// Prints a message on the standard error, or logs it.
pub(crate) fn warn(line: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{line}");
    } else {
        // Without a standard error there is no place for a message.
        drop(writeln!(stderr(), "tds: {line}"));
    }
}

/// As [`warn`], for a message that is no warning.
pub(crate) fn note(line: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::info!("{line}");
    } else {
        warn(line);
    }
}

/// Starts the log. `spec` is `text` or `json`, with an optional level after a colon.
pub(crate) fn start_log(spec: &str) -> Result<(), Failure> {
    let (format, level) = spec.split_once(':').unwrap_or((spec, "info"));
    let usage = || Failure::usage("TDS_LOG: write text or json, and a level, as in json:debug");
    let level: LevelFilter = level.parse().map_err(|_| usage())?;
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(stderr);
    let started = match format {
        "text" => log.try_init(),
        "json" => log.json().try_init(),
        _ => return Err(usage()),
    };
    started.map_err(|error| Failure::usage(error.to_string()))
}

/// Formats a number of things: `1 file`, `2 files`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{s}")
}

/// Formats a duration for people.
pub(crate) fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// A bar on a terminal, and lines elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Hidden if the standard error is no terminal.
    bar: ProgressBar,
    /// The kinds of messages that were printed. Never held over an await.
    printed: Mutex<BTreeSet<&'static str>>,
}

// === impl Progress ===

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        // A narrow terminal wraps the text.
        if let Ok(style) = ProgressStyle::with_template("{bar:12} {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            printed: Mutex::default(),
        }
    }

    pub(crate) fn is_on_terminal(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Shows the progress, and the cause of waits, on a separate line of a terminal.
    pub(crate) fn show(&self, done: u64, line: &str, waits: Option<String>) {
        let between = if self.is_on_terminal() { "\n" } else { "; " };
        let waits = waits.map(|waits| format!("{between}waits for {waits}"));
        let text = line.to_owned() + &waits.unwrap_or_default();
        if self.is_on_terminal() {
            self.bar.set_message(text);
            self.bar.set_position(done);
        } else {
            note(&text);
        }
    }

    /// Prints a message above the bar.
    pub(crate) fn warn(&self, line: &str) {
        self.bar.suspend(|| warn(line));
    }

    /// Prints the first message of a kind, above the bar.
    pub(crate) fn warn_once(&self, kind: &'static str, line: &str) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.insert(kind) {
            let line = format!("{line}; further ones of this kind are counted");
            self.warn(&line);
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
