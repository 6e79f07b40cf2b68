//! A service whose clock runs apart from the client's, and in whole milliseconds.

use super::*;

/// When they were counted, by a clock that is so many parts in a million faster.
fn by_clock(counted: &[Duration], faster: f64) -> Vec<Duration> {
    let millis = |at: &Duration| (at.as_secs_f64() * (1.0 + faster * 1e-6) * 1e3) as u64;
    counted.iter().map(|at| ms(millis(at))).collect()
}

#[test]
fn drifting_millisecond_clock_counts_at_most_the_quota() {
    for (name, delays) in DELAYS {
        for rules in [Rules::window(), Rules::default()] {
            let (counted, _) = counted_by_a_server(4_000, 1, rules, delays);
            for faster in [-500.0, 500.0] {
                let seen = by_clock(&counted, faster);
                let largest = largest_second(&seen);
                assert!(largest <= 50, "{name}, {faster} ppm: {largest} in a second");
                if rules == Rules::default() {
                    let largest = largest_weighted_second(&seen);
                    assert!(largest <= 50.0 + 1e-6, "{name}, {faster} ppm: {largest}");
                }
            }
        }
    }
}

#[test]
fn slow_clock_counts_more_without_a_guard() {
    // Or the test above could not fail. A permit is held for the interval, one part in 2,000 of
    // it, and 1.5 ms: of 998 ms that is one second.
    let unguarded = Quota::new(count(50), ms(998)).expect("an interval");
    let limits = Limits::new(unguarded);
    let (counted, _) = counted_within(&limits.clone().rules(Rules::window()), 4_000, 1, calm);
    assert!(largest_second(&by_clock(&counted, -500.0)) > 50);
    let (counted, _) = counted_within(&limits, 4_000, 1, calm);
    assert!(largest_weighted_second(&by_clock(&counted, -500.0)) > 50.0);
}
