//! Progress: a bar on a terminal, a plain line now and then otherwise.

use std::{
    io::{IsTerminal, stderr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use tds_examples::warn;

/// Counts calls, and shows the count. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    shown: Shown,
    total: u64,
}

#[derive(Debug, Clone)]
enum Shown {
    Bar(ProgressBar),
    Lines(Arc<AtomicU64>),
}

// === impl Progress ===

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        let shown = if stderr().is_terminal() {
            let bar = ProgressBar::new(total);
            if let Ok(style) = ProgressStyle::with_template(BAR) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            Shown::Bar(bar)
        } else {
            Shown::Lines(Arc::default())
        };
        Self { shown, total }
    }

    pub(crate) fn one_more(&self) {
        match &self.shown {
            Shown::Bar(bar) => bar.inc(1),
            Shown::Lines(done) => {
                // Relaxed: a count that is only shown.
                let done = done.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if done.is_multiple_of(LINE_EVERY) || done == self.total {
                    warn(&format!("{done} of {} calls done", self.total));
                }
            }
        }
    }

    pub(crate) fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// No rate: any estimate of one shows more than the limit now and then.
const BAR: &str = "{bar:40} {pos} of {len} calls, {eta} to go";

/// One line a second at the rate that the service allows.
const LINE_EVERY: u64 = 50;
