use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;

use super::{Backoff, Dice};

proptest! {
    #[test]
    fn no_draw_exceeds_its_bound(base in 0u64.., cap in 0u64.., n: u32, seed: u64) {
        let backoff = Backoff::new(Duration::from_nanos(base), Duration::from_nanos(cap));
        let drawn = backoff.draw(n, &mut Dice::seeded(seed).session());
        prop_assert!(drawn <= backoff.bound(n));
        prop_assert!(backoff.bound(n) <= Duration::from_nanos(cap));
    }

    #[test]
    fn sessions_are_spread_pairwise(seed: u64) {
        let dice = Dice::seeded(seed);
        // Wide, so that two sessions can only meet by sharing a sequence.
        let wide = Duration::from_nanos(u64::MAX);
        let backoff = Backoff::new(wide, wide);
        let firsts = (0..1000).map(|_| backoff.draw(0, &mut dice.session()));
        prop_assert_eq!(firsts.collect::<HashSet<_>>().len(), 1000);
    }
}

#[test]
fn first_draws_fill_the_whole_range_evenly() {
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
    for dice in [Dice::seeded(7), Dice::Thread] {
        let mut tenths = [0i32; 10];
        for _ in 0..10_000 {
            let drawn = backoff.draw(0, &mut dice.session()).as_millis();
            tenths[usize::try_from(drawn / 100).unwrap().min(9)] += 1;
        }
        // Ten standard deviations: 10 * sqrt(10_000 * 0.1 * 0.9).
        assert!(tenths.iter().all(|n| (n - 1000).abs() < 300), "{tenths:?}");
    }
}

#[test]
fn a_seed_repeats_all_sessions() {
    let run = || {
        let dice = Dice::seeded(42);
        [0, 1, 2].map(|n| Backoff::default().draw(n, &mut dice.session()))
    };
    assert_eq!(run(), run());
}
