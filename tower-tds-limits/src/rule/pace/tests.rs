use std::num::NonZeroU32;

use super::*;

fn pace(burst: u32) -> Pace {
    Pace::new(
        Quota::per_second(NonZeroU32::new(50).expect("50 is not zero")),
        NonZeroU32::new(burst).expect("a burst is not zero"),
    )
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_burst_passes_and_then_one_at_a_time() {
    let start = Instant::now();
    let mut pace = pace(10);
    for _ in 0..10 {
        assert_eq!(pace.earliest_at(start), Earliest::Now);
        pace.grant_at(start);
    }
    assert_eq!(pace.earliest_at(start), Earliest::At(start + ms(20)));
}

#[test]
fn lateness_does_not_add_up() {
    let start = Instant::now();
    let mut pace = pace(1);
    let mut granted = start;
    for _ in 0..100 {
        pace.grant_at(granted);
        let Earliest::At(at) = pace.earliest_at(granted) else {
            panic!("one at a time");
        };
        granted = at + ms(1); // A timer's usual lateness.
    }
    assert!(granted <= start + ms(20) * 100 + ms(1));
}

#[test]
fn a_withdrawn_grant_can_be_made_again() {
    let start = Instant::now();
    let mut pace = pace(1);
    pace.grant_at(start);
    pace.withdraw();
    assert_eq!(pace.earliest_at(start), Earliest::Now);
}
