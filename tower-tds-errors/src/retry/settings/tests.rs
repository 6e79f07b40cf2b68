use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;
use proptest::prelude::*;

use super::Backoff;

proptest! {
    #[test]
    fn no_draw_exceeds_its_bound(base in 0u64.., cap in 0u64.., n: u32, seed: u64) {
        let backoff = Backoff::new(Duration::from_nanos(base), Duration::from_nanos(cap));
        let drawn = backoff.draw(n, &mut Rng::with_seed(seed));
        prop_assert!(drawn <= backoff.bound(n));
        prop_assert!(backoff.bound(n) <= Duration::from_nanos(cap));
    }

    #[test]
    fn sessions_draw_distinct_backoffs(seed: u64) {
        fastrand::seed(seed);
        // Wide, so that two sessions can only meet by sharing a sequence.
        let wide = Duration::from_nanos(u64::MAX);
        let backoff = Backoff::new(wide, wide);
        let firsts = (0..1000).map(|_| backoff.draw(0, &mut Rng::new()));
        prop_assert_eq!(firsts.collect::<HashSet<_>>().len(), 1000);
    }
}

#[test]
fn first_draws_fill_the_whole_range_evenly() {
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
    let mut tenths = [0i32; 10];
    for _ in 0..10_000 {
        let drawn = backoff.draw(0, &mut Rng::new()).as_millis();
        tenths[usize::try_from(drawn / 100).unwrap().min(9)] += 1;
    }
    // Ten standard deviations: 10 * sqrt(10_000 * 0.1 * 0.9).
    assert!(tenths.iter().all(|n| (n - 1000).abs() < 300), "{tenths:?}");
}

#[test]
fn backoff_bound_never_decreases_with_attempts() {
    let (base, cap) = (Duration::from_nanos(1), Duration::from_secs(1_000_000));
    let backoff = Backoff::new(base, cap);
    let bounds = [0, 1, 2, 20, 31, 32, 33, u32::MAX].map(|n| backoff.bound(n));
    assert!(bounds.is_sorted(), "{bounds:?}");
}

#[test]
fn capped_backoff_draws_are_rarely_near_the_cap() {
    let ms = Duration::from_millis;
    let mut rng = Rng::with_seed(7);
    let backoff = Backoff::new(ms(100), ms(1_000));
    let waits = (0..1_000).map(|_| backoff.draw(9, &mut rng));
    let at_the_cap = waits.filter(|wait| *wait > ms(990)).count();
    // A uniform draw has about ten there.
    assert!(at_the_cap < 40, "{at_the_cap}");
}

#[test]
fn same_seed_repeats_all_draws() {
    let run = || {
        fastrand::seed(42);
        [0, 1, 2].map(|n| Backoff::default().draw(n, &mut Rng::new()))
    };
    assert_eq!(run(), run());
}
