//! The table at the end, from the server's ledger.

use std::time::Duration;

use tds_sim::Ledger;

use crate::calls::Calls;

/// Prints what the server saw, and says whether it was all as promised.
pub(crate) fn by_the_ledger(ledger: &Ledger, calls: &Calls, wanted: usize) -> bool {
    let summary = ledger.summary();
    println!();
    println!("what the server saw");
    row("data calls", &summary.data_calls.to_string());
    for (status, count) in &summary.by_status {
        row(&format!("  answered {status}"), &count.to_string());
    }
    row("token POSTs", &summary.token_posts.to_string());
    row(
        "wall time",
        &format!(
            "{:.2} s; no client within the limits needs less than {:.2} s",
            span(ledger).as_secs_f64(),
            floor(wanted).as_secs_f64()
        ),
    );
    row("largest second", &summary.largest_second.to_string());
    row("peak sockets", &summary.peak_sockets.to_string());
    println!();
    failures(calls);

    let all = u64::try_from(wanted).unwrap_or(u64::MAX);
    let clean = summary.by_status.keys().all(|status| *status == 200)
        && summary.data_calls == all
        && summary.token_posts == 1;
    let complete = calls.answered.get(&200) == Some(&all) && calls.failed.is_empty();
    verdict(clean && complete);
    clean && complete
}

/// Prints what the callers saw: another service keeps its ledger to itself.
pub(crate) fn by_the_callers(calls: &Calls, took: Duration) -> bool {
    println!();
    println!("what the callers saw");
    for (status, count) in &calls.answered {
        row(&format!("answered {status}"), &count.to_string());
    }
    row("failed", &calls.failed.len().to_string());
    row("bytes", &calls.bytes.to_string());
    row("wall time", &format!("{:.2} s", took.as_secs_f64()));
    println!();
    failures(calls);
    verdict(calls.failed.is_empty());
    calls.failed.is_empty()
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
fn floor(calls: usize) -> Duration {
    let full_seconds = calls.saturating_sub(1).checked_div(50).unwrap_or_default();
    Duration::from_secs(u64::try_from(full_seconds).unwrap_or(u64::MAX))
}

fn row(what: &str, value: &str) {
    println!("  {what:<16} {value}");
}

fn failures(calls: &Calls) {
    for (path, error) in calls.failed.iter().take(MOST_FAILURES) {
        println!("{path}: {error}");
    }
    let more = calls.failed.len().saturating_sub(MOST_FAILURES);
    if more > 0 {
        println!("and {more} more failures");
    }
}

fn verdict(good: bool) {
    println!("{}", if good { "clean" } else { "NOT clean" });
}

/// Enough to see what is wrong.
const MOST_FAILURES: usize = 5;
