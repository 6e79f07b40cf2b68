use std::time::Duration;

use proptest::prelude::*;

use super::{MEMORY, ResponseTimes, SPAN, STALE, TICKS};
use crate::clock::Tick;

const MS: u64 = 1_000_000;

fn at(millis: u64) -> Tick {
    Tick::ZERO.plus(millis * MS)
}

#[test]
fn usual_time_is_unknown_before_the_first_response() {
    let mut times = ResponseTimes::new();
    assert_eq!((times.usual(at(0)), times.mean(at(0))), (None, None));
}

#[test]
fn usual_time_covers_ninety_five_of_a_hundred_responses() {
    let mut times = ResponseTimes::new();
    for nth in 0..100 {
        let took = if nth % 10 < 3 { 1_000 } else { 80 };
        times.learn(at(2_000 + nth), at(2_000 + nth - took));
    }
    let usual = times.usual(at(2_100));
    assert_eq!(usual, Some(Duration::from_secs(1) + TICKS));
    assert_eq!(
        times.mean(at(2_100)),
        Some((30 * 1_000 + 70 * 80) * MS / 100)
    );
}

#[test]
fn one_slow_response_in_fifty_is_not_usual() {
    let mut times = ResponseTimes::new();
    for nth in 0..100 {
        let took = if nth % 50 == 7 { 900 } else { 80 };
        times.learn(at(2_000 + nth), at(2_000 + nth - took));
    }
    assert_eq!(
        times.usual(at(2_100)),
        Some(Duration::from_millis(80) + TICKS)
    );
}

#[test]
fn times_are_forgotten_after_ten_seconds_without_a_response() {
    let mut times = ResponseTimes::new();
    times.learn(at(600), at(0));
    let end = at(600).plus(MEMORY);
    assert_eq!(times.usual(end), Some(Duration::from_millis(600) + TICKS));
    assert_eq!(times.usual(end.plus(1)), None);
    assert_eq!(times.mean(end.plus(1)), None);
    // The next response begins anew.
    times.learn(end.plus(81 * MS), end.plus(MS));
    assert_eq!(
        times.usual(end.plus(81 * MS)),
        Some(Duration::from_millis(80) + TICKS)
    );
}

proptest! {
    #[test]
    fn mean_is_that_of_the_last_responses(took in prop::collection::vec(0_u64..5_000, 1..400)) {
        let mut times = ResponseTimes::new();
        for took in &took {
            times.learn(at(10_000), at(10_000 - took));
        }
        let last = &took[took.len().saturating_sub(SPAN)..];
        let sum: u64 = last.iter().sum::<u64>() * MS;
        prop_assert_eq!(times.mean(at(10_000)), Some(sum / last.len() as u64));
    }

    #[test]
    fn usual_time_lags_by_few_responses(before in 1_u64..500, after in 1_u64..500) {
        let mut times = ResponseTimes::new();
        for (count, took) in [(SPAN, before), (SPAN + STALE, after)] {
            for _ in 0..count {
                times.learn(at(10_000), at(10_000 - took));
                times.usual(at(10_000));
            }
        }
        prop_assert_eq!(times.usual(at(10_000)), Some(Duration::from_millis(after) + TICKS));
    }
}
