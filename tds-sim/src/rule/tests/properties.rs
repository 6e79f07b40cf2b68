use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::{ALL, SECOND, models, ms, us, verdicts};
use crate::rule::Rule;

/// Gaps that make bursts, rhythms, exact seconds, near misses of them, and pauses.
fn gap() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => Just(Duration::ZERO),
        6 => (0..50_000_u64).prop_map(us),
        3 => Just(ms(20)),
        1 => Just(SECOND),
        1 => (990_000_000..1_010_000_000_u64).prop_map(Duration::from_nanos),
        2 => (0..2_500_u64).prop_map(ms),
    ]
}

fn arrivals() -> impl Strategy<Value = Vec<Duration>> {
    vec(gap(), 1..150).prop_map(|gaps| {
        gaps.iter()
            .scan(Duration::ZERO, |now, gap| {
                *now += *gap;
                Some(*now)
            })
            .collect()
    })
}

fn small_limit() -> impl Strategy<Value = u32> {
    prop_oneof![1..6_u32, Just(20), Just(50)]
}

proptest! {
    #[test]
    fn fixed_window_agrees_with_its_model(arrivals in arrivals(), limit in small_limit()) {
        let model = models::decide(&arrivals, models::fixed(limit as usize));
        prop_assert_eq!(verdicts(Rule::FixedWindow, limit, &arrivals), model);
    }

    #[test]
    fn sliding_log_agrees_with_its_model(arrivals in arrivals(), limit in small_limit()) {
        let model = models::decide(&arrivals, models::log(limit as usize));
        prop_assert_eq!(verdicts(Rule::SlidingLog, limit, &arrivals), model);
    }

    #[test]
    fn sliding_log_of_all_agrees_with_its_model(arrivals in arrivals(), limit in small_limit()) {
        let model = models::decide(&arrivals, models::log_all(limit as usize));
        prop_assert_eq!(verdicts(Rule::SlidingLogAll, limit, &arrivals), model);
    }

    #[test]
    fn sliding_counter_agrees_with_its_model(arrivals in arrivals(), limit in small_limit()) {
        let model = models::decide(&arrivals, models::counter(limit.into()));
        prop_assert_eq!(verdicts(Rule::SlidingCounter, limit, &arrivals), model);
    }

    #[test]
    fn leaky_bucket_agrees_with_its_model(
        arrivals in arrivals(),
        limit in small_limit(),
        burst in 0..12_u32,
    ) {
        // `limit` a second is `limit` thousandths a millisecond.
        let model = models::decide(&arrivals, models::leaky(limit.into(), burst.into()));
        prop_assert_eq!(verdicts(Rule::LeakyBucket { burst }, limit, &arrivals), model);
    }

    #[test]
    fn in_flight_rule_agrees_with_its_model(
        events in vec((gap(), any::<proptest::sample::Index>(), any::<bool>()), 1..150),
        limit in small_limit(),
    ) {
        let mut meter = Rule::InFlight.meter(limit, SECOND);
        let mut accept = models::in_flight(limit as usize);
        let mut seen: Vec<models::Seen> = Vec::new();
        let mut now = Duration::ZERO;
        for (gap, which, end) in events {
            now += gap;
            let mut open: Vec<_> = seen
                .iter_mut()
                .filter(|seen| seen.accepted && seen.end.is_none())
                .collect();
            if end && !open.is_empty() {
                let ending = which.index(open.len());
                let ending = &mut open[ending];
                ending.end = Some(now);
                meter.end(ending.at, now);
            } else {
                let accepted = accept(&seen, now);
                prop_assert_eq!(meter.arrive(now), accepted);
                seen.push(models::Seen { at: now, accepted, end: None });
            }
        }
    }

    #[test]
    fn backward_clock_reading_counts_as_the_latest_time(
        arrivals in vec((gap(), 0..300_u64), 1..100),
        limit in small_limit(),
    ) {
        for rule in ALL {
            let mut stumbling = rule.meter(limit, SECOND);
            let mut standing = rule.meter(limit, SECOND);
            let mut now = Duration::ZERO;
            let mut latest = Duration::ZERO;
            for (gap, back) in &arrivals {
                now += *gap;
                let at = now.saturating_sub(ms(*back));
                latest = latest.max(at);
                prop_assert_eq!(stumbling.arrive(at), standing.arrive(latest), "{:?}", rule);
            }
        }
    }
}
