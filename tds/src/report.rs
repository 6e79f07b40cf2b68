//! The report on a list: each line is in one of the sums, and in one only.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{exit::Exit, progress::Bytes};

/// The sums of a run, and what to run again.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// All lines: what follows adds up to it.
    pub(crate) total: u64,
    pub(crate) ok: u64,
    /// Of `ok`: a file of another URL or service, or of unknown origin, had the name.
    pub(crate) replaced: u64,
    /// Was there already.
    pub(crate) skipped: u64,
    /// By kind.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// Not begun or not ended when the job ended.
    pub(crate) unfinished: u64,
    /// As they were written.
    pub(crate) bytes: u64,
    pub(crate) seconds: u64,
    /// Why it ended before its list did.
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

    /// By what a run ends whose list came to its end: if nothing came and all for one reason, by that.
    pub(crate) fn exit(&self, reasons: &[Exit]) -> Exit {
        match reasons {
            [] if self.unfinished == 0 => Exit::Whole,
            [first, others @ ..] if self.ok == 0 && others.iter().all(|other| other == first) => {
                *first
            }
            _ => Exit::SomeFailed,
        }
    }

    /// One line for people.
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
        let bytes = Bytes(self.bytes);
        format!(
            "{total} files: {ok} ok, {skipped} skipped, {failed} failed{kinds}, {unfinished} unfinished; \
             {bytes} in {seconds} s\n"
        )
    }

    fn ended_one(&mut self) {
        self.unfinished -= 1;
    }
}
