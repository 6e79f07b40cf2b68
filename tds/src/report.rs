//! The report on a list: each line is in one of the sums, and in one only.

use std::collections::BTreeMap;

use serde::Serialize;

use indicatif::DecimalBytes;

use crate::exit::Exit;

/// The sums of a run, and the list for the next run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The number of lines, which is the sum of the following numbers.
    pub(crate) total: u64,
    pub(crate) ok: u64,
    /// The part of `ok` that replaced a file of another URL or service, or of unknown origin.
    pub(crate) replaced: u64,
    /// Files that existed.
    pub(crate) skipped: u64,
    /// Failures by kind.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// Items not begun or not finished at the end of the job.
    pub(crate) unfinished: u64,
    /// Bytes written.
    pub(crate) bytes: u64,
    pub(crate) seconds: u64,
    /// Why the run ended early.
    pub(crate) ended_by: Option<String>,
    pub(crate) exit: u8,
    /// The lines that failed or are unfinished, as a list.
    pub(crate) again: Vec<String>,
}

// === impl Report ===

impl Report {
    pub(crate) const fn new(total: u64) -> Self {
        Self {
            total,
            ok: 0,
            replaced: 0,
            skipped: 0,
            failed: BTreeMap::new(),
            unfinished: total,
            bytes: 0,
            seconds: 0,
            ended_by: None,
            exit: 0,
            again: Vec::new(),
        }
    }

    pub(crate) fn ok(&mut self, bytes: u64) {
        self.ok += 1;
        self.bytes += bytes;
        self.ended_one();
    }

    pub(crate) fn skipped(&mut self) {
        self.skipped += 1;
        self.ended_one();
    }

    pub(crate) fn failed(&mut self, kind: &'static str) {
        *self.failed.entry(kind).or_default() += 1;
        self.ended_one();
    }

    pub(crate) fn done(&self) -> u64 {
        self.total - self.unfinished
    }

    /// The exit of a run at the end of its list: the common reason if no file succeeded.
    pub(crate) fn exit(&self, reasons: &[Exit]) -> Exit {
        match reasons {
            [] if self.unfinished == 0 => Exit::Whole,
            [first, others @ ..] if self.ok == 0 && others.iter().all(|other| other == first) => {
                *first
            }
            _ => Exit::SomeFailed,
        }
    }

    /// The summary line.
    pub(crate) fn line(&self) -> String {
        let failed: u64 = self.failed.values().sum();
        let kinds = self
            .failed
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let kinds = if kinds.is_empty() {
            kinds
        } else {
            format!(" ({kinds})")
        };
        let Self {
            total,
            ok,
            skipped,
            unfinished,
            seconds,
            ..
        } = self;
        let bytes = DecimalBytes(self.bytes);
        format!(
            "{total} files: {ok} ok, {skipped} skipped, {failed} failed{kinds}, {unfinished} unfinished; \
             {bytes} in {seconds} s\n"
        )
    }

    fn ended_one(&mut self) {
        self.unfinished -= 1;
    }
}
