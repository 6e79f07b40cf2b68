//! Output of the program: data, messages, the log, and the progress of a job.

use std::{
    io::{self, Write, stderr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use console::style;
use serde_json::Value;
use tracing::level_filters::LevelFilter;

use crate::exit::{Exit, Failure};

/// Writes to the standard output. Returns whether that still has a reader, because `head` closes
/// the pipe when it has read enough.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<bool, Failure> {
    copy(data.as_ref()).map_err(|error| Failure::new(Exit::SomeFailed, error.to_string()))
}

/// Writes data of any length as [`print()`] does.
pub(crate) fn copy(mut data: impl io::Read) -> io::Result<bool> {
    let mut out = io::stdout();
    match io::copy(&mut data, &mut out).and_then(|_| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(io::Error::other(format!("the standard output: {error}"))),
    }
}

/// Prints an event as a line of JSON, or its text.
pub(crate) fn tell(is_json: bool, event: &Value, text: String) -> Result<bool, Failure> {
    print(if is_json { format!("{event}\n") } else { text })
}

/// Prints a message on the standard error, or logs it.
pub(crate) fn warn(line: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{line}");
    } else {
        // If the standard error is closed, the message has nowhere to go, so the failure is
        // ignored.
        let name = style("tds:").for_stderr().red().bold();
        drop(writeln!(stderr(), "{name} {line}"));
    }
}

/// Prints a message that is no warning, as [`warn`] does. With `--quiet` it is left out.
pub(crate) fn note(line: &str) {
    if is_quiet() {
    } else if tracing::dispatcher::has_been_set() {
        tracing::info!("{line}");
    } else {
        drop(writeln!(
            stderr(),
            "{} {line}",
            style("tds:").for_stderr().cyan()
        ));
    }
}

/// Leaves out everything but failures from now on.
pub(crate) fn be_quiet() {
    // Relaxed: it is set before the job begins.
    QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// A global, because the standard error is one too.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Starts the log. `spec` is `text` or `json`, with an optional level after a colon.
pub(crate) fn start_log(spec: &str) -> Result<(), String> {
    let (format, level) = spec.split_once(':').unwrap_or((spec, "info"));
    let usage = || "write text or json, and a level, as in json:debug".to_owned();
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
    started.map_err(|error| error.to_string())
}

/// Formats a number of things: `1 file`, `2 files`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{s}")
}

/// Formats a duration for people: `90 s`, `5 min`, `23 h`.
pub(crate) fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
