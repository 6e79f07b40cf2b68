//! The pace beside its definition, however late its grants are.

use proptest::prelude::*;

use super::*;

proptest! {
    /// Granted each so many microseconds after it may be: in no span there are more than the
    /// burst and one for each interval, but for what a timer is late by.
    #[test]
    fn no_span_holds_more_than_the_burst_and_its_even_share(
        burst in 1_u32..12,
        late in prop::collection::vec(prop_oneof![
            3 => Just(0_u64),
            3 => 0_u64..3_000,
            1 => 0_u64..500_000,
        ], 1..150),
    ) {
        let mut pace = pace(burst);
        let mut now = START;
        let mut granted = Vec::new();
        for late in late {
            now = now.max(pace.opens_at()).plus(late * 1_000);
            pace.grant(now);
            granted.push(now);
        }
        for (first, from) in granted.iter().enumerate() {
            for (nth, to) in granted.iter().enumerate().skip(first) {
                let n = u64::try_from(nth - first).expect("few");
                let even = n.saturating_sub(u64::from(burst) - 1) * 20_000_000;
                let span = to.since(*from);
                prop_assert!(span + CATCH_UP >= even, "{n} more within {span} ns");
            }
        }
    }

    /// Who is asked for one at each instant at which it may go is not slower than the even share.
    #[test]
    fn lateness_within_a_timer_s_costs_nothing(
        late in prop::collection::vec(0_u64..2_000, 50..150),
    ) {
        let mut pace = pace(1);
        pace.grant(START);
        for (nth, late) in (1_u64..).zip(&late) {
            let now = pace.opens_at();
            prop_assert_eq!(now, START.plus(20_000_000 * nth));
            pace.grant(now.plus(late * 1_000));
        }
    }
}
