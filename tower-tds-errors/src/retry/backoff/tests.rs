use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;

use super::{Backoff, Dice};

proptest! {
    #[test]
    fn no_draw_exceeds_its_bound(base in 0u64.., cap in 0u64.., n: u32, seed: u64) {
        let backoff = Backoff::new(Duration::from_nanos(base), Duration::from_nanos(cap));
        let drawn = backoff.draw(n, Duration::ZERO, &mut Dice::seeded(seed).session());
        prop_assert!(drawn <= backoff.bound(n));
        prop_assert!(backoff.bound(n) <= Duration::from_nanos(cap));
    }

    #[test]
    fn decorrelated_draws_grow_from_the_base_and_stay_below_their_bound(
        base in 0u64..1_000_000, cap in 0u64..100_000_000, seed: u64,
    ) {
        let (base, cap) = (Duration::from_nanos(base), Duration::from_nanos(cap));
        let backoff = Backoff::decorrelated(base, cap);
        let mut rng = Dice::seeded(seed).session();
        let mut before = Duration::ZERO;
        for n in [0, 1, 2, 3, 4, 5, u32::MAX] {
            let wait = backoff.draw(n, before, &mut rng);
            prop_assert!(wait >= base.min(cap) && wait <= backoff.bound(n));
            prop_assert!(wait <= before.max(base).saturating_mul(3));
            before = wait;
        }
    }

    #[test]
    fn sessions_are_spread_pairwise(seed: u64) {
        let dice = Dice::seeded(seed);
        // Wide, so that two sessions can only meet by sharing a sequence.
        let wide = Duration::from_nanos(u64::MAX);
        let backoff = Backoff::new(wide, wide);
        let firsts = (0..1000).map(|_| backoff.draw(0, Duration::ZERO, &mut dice.session()));
        prop_assert_eq!(firsts.collect::<HashSet<_>>().len(), 1000);
    }
}

#[test]
fn first_draws_fill_the_whole_range_evenly() {
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
    for dice in [Dice::seeded(7), Dice::Thread] {
        let mut tenths = [0i32; 10];
        for _ in 0..10_000 {
            let drawn = backoff
                .draw(0, Duration::ZERO, &mut dice.session())
                .as_millis();
            tenths[usize::try_from(drawn / 100).unwrap().min(9)] += 1;
        }
        // Ten standard deviations: 10 * sqrt(10_000 * 0.1 * 0.9).
        assert!(tenths.iter().all(|n| (n - 1000).abs() < 300), "{tenths:?}");
    }
}

#[test]
fn bounds_only_grow_however_late_the_attempt() {
    let (base, cap) = (Duration::from_nanos(1), Duration::from_secs(1_000_000));
    for backoff in [Backoff::new(base, cap), Backoff::decorrelated(base, cap)] {
        let bounds = [0, 1, 2, 20, 31, 32, 33, u32::MAX].map(|n| backoff.bound(n));
        assert!(bounds.is_sorted(), "{bounds:?}");
    }
}

#[test]
fn draws_do_not_pile_up_at_the_cap() {
    let ms = Duration::from_millis;
    let mut rng = Dice::seeded(7).session();
    for backoff in [
        Backoff::new(ms(100), ms(1_000)),
        Backoff::decorrelated(ms(100), ms(1_000)),
    ] {
        let waits = (0..1_000).map(|_| backoff.draw(9, ms(900), &mut rng));
        let at_the_cap = waits.filter(|wait| *wait > ms(990)).count();
        // An even draw has ten there, fifteen at the most by the range from the base.
        assert!(at_the_cap < 40, "{at_the_cap}");
    }
}

#[test]
fn a_seed_repeats_all_sessions() {
    let run = || {
        let dice = Dice::seeded(42);
        [0, 1, 2].map(|n| Backoff::default().draw(n, Duration::ZERO, &mut dice.session()))
    };
    assert_eq!(run(), run());
}
