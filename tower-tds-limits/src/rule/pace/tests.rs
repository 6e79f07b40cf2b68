mod properties;

use std::{num::NonZeroU32, time::Duration};

use super::*;

fn pace(burst: u32) -> Pace {
    Pace::new(
        Quota::per_second(NonZeroU32::new(50).expect("50 is not zero")),
        NonZeroU32::new(burst).expect("a burst is not zero"),
    )
}

const START: Tick = Tick::ZERO.plus(5_000_000_000);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_burst_passes_and_then_one_at_a_time() {
    let start = START;
    let mut pace = pace(10);
    for _ in 0..10 {
        assert!(pace.opens_at() <= start);
        pace.grant(start);
    }
    assert_eq!(pace.opens_at(), start + ms(20));
}

#[test]
fn lateness_does_not_add_up() {
    let start = START;
    let mut pace = pace(1);
    let mut granted = start;
    for _ in 0..100 {
        pace.grant(granted);
        granted = pace.opens_at() + ms(1); // A timer's usual lateness.
    }
    assert!(granted <= start + ms(20) * 100 + ms(1));
}

#[test]
fn a_withdrawn_grant_can_be_made_again() {
    let start = START;
    let mut pace = pace(1);
    pace.grant(start);
    pace.withdraw();
    assert!(pace.opens_at() <= start);
}
