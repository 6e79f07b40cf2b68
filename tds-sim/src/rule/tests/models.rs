//! Models of the rules: each keeps all arrivals and counts them again for each decision.

use std::time::Duration;

use super::SECOND;

/// An accepted or refused arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) at: Duration,
    pub(super) accepted: bool,
    pub(super) end: Option<Duration>,
}

/// Decides on each arrival in turn by all arrivals before it. No request ends.
pub(super) fn decide(
    arrivals: &[Duration],
    mut accept: impl FnMut(&[Seen], Duration) -> bool,
) -> Vec<bool> {
    let mut seen = Vec::new();
    for &at in arrivals {
        let accepted = accept(&seen, at);
        seen.push(Seen {
            at,
            accepted,
            end: None,
        });
    }
    seen.iter().map(|seen| seen.accepted).collect()
}

pub(super) fn fixed(limit: usize) -> impl FnMut(&[Seen], Duration) -> bool {
    move |seen, now| {
        let same = |s: &&Seen| s.accepted && s.at.as_secs() == now.as_secs();
        seen.iter().filter(same).count() < limit
    }
}

pub(super) fn log(limit: usize) -> impl FnMut(&[Seen], Duration) -> bool {
    move |seen, now| {
        let counts = |s: &&Seen| s.accepted && s.at + SECOND > now;
        seen.iter().filter(counts).count() < limit
    }
}

pub(super) fn log_all(limit: usize) -> impl FnMut(&[Seen], Duration) -> bool {
    move |seen, now| seen.iter().filter(|s| s.at + SECOND > now).count() < limit
}

/// The windows from the whole history: starts are found by walking from the first arrival.
pub(super) fn counter(limit: u128) -> impl FnMut(&[Seen], Duration) -> bool {
    move |seen, now| {
        let arrivals: Vec<_> = seen.iter().map(|s| s.at).chain([now]).collect();
        let mut start = arrivals[0];
        let mut fresh = start;
        for &at in &arrivals {
            if at >= start + SECOND * 2 {
                start = at;
                fresh = at;
            } else if at >= start + SECOND {
                start += SECOND;
            }
        }
        // Requests from before the windows were reset do not count.
        let within = |from: Duration, to: Duration| {
            let counts = |at: &&Duration| **at >= from && **at >= fresh && **at < to;
            u128::try_from(arrivals.iter().filter(counts).count()).unwrap()
        };
        let previous = within(start.saturating_sub(SECOND), start);
        let current = within(start, start + SECOND);
        let left = (start + SECOND - now).as_nanos();
        previous * left + current * SECOND.as_nanos() <= limit * SECOND.as_nanos()
    }
}

/// The level of nginx as the largest backlog over all accepted arrivals: the requests since one of
/// them, less what has drained since. `rate` is a whole number of thousandths per millisecond, so
/// the model needs no rounding.
pub(super) fn leaky(rate: i128, burst: i128) -> impl FnMut(&[Seen], Duration) -> bool {
    move |seen, now| {
        let accepted: Vec<_> = seen.iter().filter(|s| s.accepted).collect();
        (0..accepted.len()).all(|first| {
            let beside = i128::try_from(accepted.len() - first).unwrap();
            let passed = now.as_millis() - accepted[first].at.as_millis();
            1000 * beside - rate * i128::try_from(passed).unwrap() <= 1000 * burst
        })
    }
}

pub(super) fn in_flight(limit: usize) -> impl FnMut(&[Seen], Duration) -> bool {
    move |seen, now| {
        let counts = |s: &&Seen| s.accepted && s.end.is_none_or(|end| end + SECOND > now);
        seen.iter().filter(counts).count() < limit
    }
}
