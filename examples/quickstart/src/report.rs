//! The table at the end of a run, made from the server's ledger.

use std::{fmt::Display, time::Duration};

use tds_sim::Ledger;

/// Returns the table, and whether every promise was kept.
pub(crate) fn report(ledger: &Ledger, failed: &[String], wanted: u32) -> (String, bool) {
    let seen = ledger.summary();
    let mut text = String::from("\nwhat the server saw\n");
    let mut row = |what: &str, value: &dyn Display| {
        text.push_str(&format!("  {what:<16} {value}\n"));
    };
    row("data calls", &seen.data_calls);
    for (status, count) in &seen.by_status {
        row(&format!("  answered {status}"), count);
    }
    row("token POSTs", &seen.token_posts);
    // The first fifty may arrive at once, then fifty per second.
    let floor = (wanted - 1) / 50;
    let time = span(ledger).as_secs_f64();
    let time = format!("{time:.2} s; no client within the limits needs less than {floor}.00 s");
    row("wall time", &time);
    row("largest second", &format!("{} of 50", seen.largest_second));
    row("peak sockets", &format!("{} of 60", seen.peak_sockets));

    let all = u64::from(wanted);
    if seen.complete < all && failed.is_empty() {
        text.push_str("  interrupted: the other calls were not made\n");
    }
    text.push('\n');
    for error in failed.iter().take(MOST_ERRORS) {
        text.push_str(&format!("{error}\n"));
    }
    if failed.len() > MOST_ERRORS {
        text.push_str(&format!(
            "and {} more failures\n",
            failed.len() - MOST_ERRORS
        ));
    }
    let is_clean = seen.by_status == [(200, all)].into()
        && seen.data_calls == all
        && seen.complete == all
        && seen.token_posts == 1
        && failed.is_empty();
    text.push_str(if is_clean { "clean\n" } else { "NOT clean\n" });
    (text, is_clean)
}

/// Returns the time from the first arrival to the end of the last answer.
fn span(ledger: &Ledger) -> Duration {
    let arrivals = ledger.arrivals();
    let first = arrivals.iter().map(|arrival| arrival.at).min();
    let last = arrivals.iter().filter_map(|arrival| arrival.ended).max();
    last.unwrap_or_default()
        .saturating_sub(first.unwrap_or_default())
}

/// Number of errors that are shown, enough to see what is wrong.
const MOST_ERRORS: usize = 5;
