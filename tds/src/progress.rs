//! Progress of a bulk download: a bar on a terminal, and lines elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{
    lock::lock,
    output::{self, counted, is_quiet, note, rough},
};

#[derive(Debug)]
pub(crate) struct Progress {
    /// Hidden if the standard error is no terminal.
    bar: ProgressBar,
    /// Number of bytes received. Relaxed: it is only shown.
    received: AtomicU64,
    /// Kinds of messages that were printed.
    printed: Mutex<BTreeSet<&'static str>>,
}

/// Sums of a run. Each line of the list is in exactly one of `ok`, `skipped`, `failed` and
/// `unfinished`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) event: &'static str,
    pub(crate) total: u64,
    pub(crate) ok: u64,
    /// How many of `ok` replaced an existing file.
    pub(crate) replaced: u64,
    pub(crate) skipped: u64,
    /// Failed files by kind.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    pub(crate) unfinished: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: u64,
    /// Why the run ended early.
    pub(crate) ended_by: Option<String>,
    pub(crate) exit: u8,
}

// === impl Progress ===

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = match is_quiet() {
            true => ProgressBar::hidden(),
            false => ProgressBar::new(PARTS),
        };
        // The bar is short, so that the text beside it fits on narrow terminals.
        if let Ok(style) = ProgressStyle::with_template("{bar:10.green} {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            received: AtomicU64::default(),
            printed: Mutex::default(),
        }
    }

    pub(crate) fn is_on_terminal(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Records received bytes.
    pub(crate) fn came(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Shows the progress, and the cause of waits, on a separate line of a terminal.
    pub(crate) fn show(&self, report: &Report, elapsed: Duration, waits: Option<String>) {
        let (done, line) = report.progress(self.received(), elapsed);
        let between = if self.is_on_terminal() { "\n" } else { "; " };
        let waits = waits.map(|waits| format!("{between}waits for {waits}"));
        let text = line + &waits.unwrap_or_default();
        if self.is_on_terminal() {
            self.bar.set_message(text);
            self.bar.set_position(done);
        } else {
            note(&text);
        }
    }

    /// Prints a message above the bar.
    pub(crate) fn warn(&self, line: &str) {
        self.bar.suspend(|| output::warn(line));
    }

    /// Prints the first message of a kind, above the bar.
    pub(crate) fn warn_once(&self, kind: &'static str, line: &str) {
        if lock(&self.printed).insert(kind) {
            let line = format!("{line}; further ones of this kind are only counted");
            self.warn(&line);
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

// === impl Report ===

impl Report {
    /// Returns how much of the job is done, in [`PARTS`], and the line beside the bar.
    fn progress(&self, received: u64, elapsed: Duration) -> (u64, String) {
        let (ended, seconds) = (self.total - self.unfinished, elapsed.as_secs().max(1));
        // Skipped files took no time.
        let (done, all) = (ended - self.skipped, self.total - self.skipped);
        let left = (seconds * (all - done)).checked_div(done);
        let left = left.map_or_else(|| "?".to_owned(), |left| rough(Duration::from_secs(left)));
        let (rate, per_second) = (done / seconds, DecimalBytes(received / seconds));
        let (files, bytes) = (counted(self.total, "file"), DecimalBytes(received));
        let failed = match self.failed.values().sum::<u64>() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let line =
            format!("{ended}/{files}, {rate}/s, {bytes}, {per_second}/s, {left} to go{failed}");
        (done * PARTS / all.max(1), line)
    }

    /// Returns the summary line.
    pub(crate) fn line(&self) -> String {
        let failed: u64 = self.failed.values().sum();
        let Self {
            total,
            ok,
            skipped,
            unfinished,
            seconds,
            ..
        } = self;
        let (files, bytes) = (counted(*total, "file"), DecimalBytes(self.bytes));
        format!(
            "{files}: {ok} ok, {skipped} skipped, {failed} failed, {unfinished} unfinished; \
             {bytes} in {seconds} s\n"
        )
    }
}

/// Steps of the bar.
const PARTS: u64 = 1_000;
