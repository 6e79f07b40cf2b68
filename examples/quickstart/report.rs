//! The table at the end, from the server's ledger.

use std::{fmt, time::Duration};

use tds_sim::Ledger;

use crate::calls::Calls;

/// What the run came to.
#[derive(Debug)]
pub(crate) struct Report {
    /// For the reader, in lines.
    pub(crate) text: String,
    /// Whether it was all as promised.
    pub(crate) clean: bool,
}

/// What the server saw.
pub(crate) fn by_the_ledger(ledger: &Ledger, calls: &Calls, wanted: u32) -> Report {
    let summary = ledger.summary();
    let mut text = String::from("\nwhat the server saw\n");
    row(&mut text, "data calls", summary.data_calls);
    for (status, count) in &summary.by_status {
        row(&mut text, &format!("  answered {status}"), count);
    }
    row(&mut text, "token POSTs", summary.token_posts);
    let wall_time = format!(
        "{:.2} s; no client within the limits needs less than {:.2} s",
        span(ledger).as_secs_f64(),
        floor(wanted).as_secs_f64()
    );
    row(&mut text, "wall time", wall_time);
    let (rate, sockets) = (50, 60);
    row(
        &mut text,
        "largest second",
        format!("{} of {rate}", summary.largest_second),
    );
    row(
        &mut text,
        "peak sockets",
        format!("{} of {sockets}", summary.peak_sockets),
    );

    let all = u64::from(wanted);
    let clean = summary.by_status.keys().all(|status| *status == 200)
        && summary.data_calls == all
        && summary.token_posts == 1;
    let complete = calls.answered.get(&200) == Some(&all) && calls.failed.is_empty();
    if calls.interrupted {
        text.push_str("  interrupted: the rest was not called\n");
    }
    Report::new(text, calls, clean && complete)
}

/// What the callers saw: another service keeps its ledger to itself.
pub(crate) fn by_the_callers(calls: &Calls, took: Duration) -> Report {
    let mut text = String::from("\nwhat the callers saw\n");
    for (status, count) in &calls.answered {
        row(&mut text, &format!("answered {status}"), count);
    }
    row(&mut text, "failed", calls.failed.len());
    row(&mut text, "bytes", calls.bytes);
    row(
        &mut text,
        "wall time",
        format!("{:.2} s", took.as_secs_f64()),
    );
    Report::new(text, calls, calls.failed.is_empty())
}

// === impl Report ===

impl Report {
    /// The table with what failed and the verdict.
    fn new(mut text: String, calls: &Calls, clean: bool) -> Self {
        text.push('\n');
        for (path, error) in calls.failed.iter().take(MOST_FAILURES) {
            text.push_str(&format!("{path}: {error}\n"));
        }
        let more = calls.failed.len().saturating_sub(MOST_FAILURES);
        if more > 0 {
            text.push_str(&format!("and {more} more failures\n"));
        }
        text.push_str(if clean { "clean\n" } else { "NOT clean\n" });
        Self { text, clean }
    }
}

/// From the first arrival to the end of the last answer.
fn span(ledger: &Ledger) -> Duration {
    let arrivals = ledger.arrivals();
    let first = arrivals.iter().map(|arrival| arrival.at).min();
    let last = arrivals.iter().filter_map(|arrival| arrival.ended).max();
    last.unwrap_or_default()
        .saturating_sub(first.unwrap_or_default())
}

/// The least time in which any client can have `calls` counted at 50 in any second: the first
/// fifty at once, then fifty a second (contract, "Limits").
fn floor(calls: u32) -> Duration {
    let full_seconds = calls.saturating_sub(1).checked_div(50).unwrap_or_default();
    Duration::from_secs(full_seconds.into())
}

fn row(text: &mut String, what: &str, value: impl fmt::Display) {
    text.push_str(&format!("  {what:<16} {value}\n"));
}

/// Enough to see what is wrong.
const MOST_FAILURES: usize = 5;
