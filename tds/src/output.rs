//! Output of the program: data, messages, the log, and the progress of a job.

use std::{
    error::Error,
    io::{self, IsTerminal, Write, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;
use tracing::level_filters::LevelFilter;

use crate::exit::{Exit, Failure};

/// Writes to the standard output. Returns whether it has a reader: `head` closes the pipe when it has
/// read enough.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<bool, Failure> {
    let mut out = io::stdout();
    match out.write_all(data.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(
            Exit::SomeFailed,
            format!("the standard output: {error}"),
        )),
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

/// Starts the log: `text` or `json`, with a level behind a colon.
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

/// An error and its causes, in one line.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line
}

/// A number of things, as `1 file` and `2 files`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{s}")
}

/// A duration for people.
pub(crate) fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// Shows the progress: each update on a terminal, and a line each ten seconds elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    shown: Instant,
}

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
            shown: Instant::now(),
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
        } else if self.shown.elapsed() >= EVERY {
            self.shown = Instant::now();
            note(&line("; "));
        }
    }

    /// Prints a line that the bar does not overwrite.
    pub(crate) fn warn(&self, line: &str) {
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

const EVERY: Duration = Duration::from_secs(10);
