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

/// Arrivals of which no second holds more than `limit`.
fn gentle_arrivals(limit: usize) -> impl Strategy<Value = Vec<Duration>> {
    arrivals().prop_map(move |arrivals| {
        let passes = models::decide(&arrivals, models::log(limit));
        kept(&arrivals, &passes)
    })
}

fn kept(arrivals: &[Duration], keep: &[bool]) -> Vec<Duration> {
    let pairs = arrivals.iter().zip(keep);
    pairs
        .filter(|(_, keep)| **keep)
        .map(|(at, _)| *at)
        .collect()
}

/// The most instants in any `[t, t + 1 s)`: one of them may be taken as its first.
fn most_in_a_second(instants: &[Duration]) -> usize {
    let from = |first: &Duration| {
        let within = |at: &&Duration| **at >= *first && **at < *first + SECOND;
        instants.iter().filter(within).count()
    };
    instants.iter().map(from).max().unwrap_or(0)
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
    fn log_accepts_at_most_the_limit_in_any_second(
        arrivals in arrivals(),
        limit in small_limit(),
        rule in prop_oneof![Just(Rule::SlidingLog), Just(Rule::SlidingLogAll)],
    ) {
        let accepted = kept(&arrivals, &verdicts(rule, limit, &arrivals));
        prop_assert!(most_in_a_second(&accepted) <= limit as usize);
    }

    #[test]
    fn fixed_window_accepts_at_most_the_limit(
        arrivals in arrivals(),
        limit in small_limit(),
    ) {
        let accepted = kept(&arrivals, &verdicts(Rule::FixedWindow, limit, &arrivals));
        for window in accepted.chunk_by(|a, b| a.as_secs() == b.as_secs()) {
            prop_assert!(window.len() <= limit as usize);
        }
        prop_assert!(most_in_a_second(&accepted) <= 2 * limit as usize);
    }

    #[test]
    fn arrivals_within_the_limit_are_accepted_by_windows_and_logs(
        arrivals in gentle_arrivals(20),
    ) {
        for rule in [Rule::FixedWindow, Rule::SlidingLog, Rule::SlidingLogAll] {
            prop_assert!(verdicts(rule, 20, &arrivals).iter().all(|accepted| *accepted), "{}", rule);
        }
    }

    #[test]
    fn in_flight_rule_equals_the_log_for_instant_requests(
        arrivals in arrivals(),
        limit in small_limit(),
    ) {
        let mut meter = Rule::InFlight.meter(limit, SECOND);
        let mut model = Vec::new();
        for &at in &arrivals {
            let accepted = meter.arrive(at);
            if accepted {
                meter.end(at, at);
            }
            model.push(accepted);
        }
        prop_assert_eq!(verdicts(Rule::SlidingLog, limit, &arrivals), model);
    }

    #[test]
    fn counter_accepts_at_most_the_limit_per_window(
        arrivals in arrivals(),
        limit in small_limit(),
    ) {
        // After a pause the windows begin anew, so only the time before the first pause is checked.
        let steady = arrivals.windows(2).position(|pair| pair[1] - pair[0] >= SECOND);
        let steady = &arrivals[..steady.map_or(arrivals.len(), |last| last + 1)];
        let accepted = kept(steady, &verdicts(Rule::SlidingCounter, limit, steady));
        let window = |at: &Duration| (*at - steady[0]).as_secs();
        for window in accepted.chunk_by(|a, b| window(a) == window(b)) {
            prop_assert!(window.len() <= limit as usize);
        }
    }

    #[test]
    fn bucket_accepts_at_most_its_burst_and_the_drain(
        arrivals in arrivals(),
        limit in small_limit(),
        burst in 0..12_u32,
    ) {
        let accepted = kept(&arrivals, &verdicts(Rule::LeakyBucket { burst }, limit, &arrivals));
        for (i, first) in accepted.iter().enumerate() {
            for (j, last) in accepted.iter().enumerate().skip(i) {
                // Its clock may have ticked once more than the span is long.
                let drained = (*last - *first + ms(1)).as_nanos() * u128::from(limit);
                let beside = u128::try_from(j - i).unwrap() * SECOND.as_nanos();
                prop_assert!(beside <= u128::from(burst) * SECOND.as_nanos() + drained);
            }
        }
    }

    #[test]
    fn removing_arrivals_keeps_acceptances_in_the_log_of_all(
        arrivals in vec((gap(), any::<bool>()), 1..150),
        limit in small_limit(),
    ) {
        let mut all = Rule::SlidingLogAll.meter(limit, SECOND);
        let mut some = Rule::SlidingLogAll.meter(limit, SECOND);
        let mut now = Duration::ZERO;
        for (gap, in_both) in arrivals {
            now += gap;
            let accepted = all.arrive(now);
            if in_both {
                prop_assert!(some.arrive(now) || !accepted);
            }
        }
    }

    #[test]
    fn higher_limit_accepts_at_least_as_many(arrivals in arrivals(), limit in small_limit()) {
        for rule in [Rule::FixedWindow, Rule::SlidingLog, Rule::SlidingLogAll, Rule::SlidingCounter] {
            let mut lower = 0;
            let mut higher = 0;
            let pairs = verdicts(rule, limit, &arrivals)
                .into_iter()
                .zip(verdicts(rule, limit + 1, &arrivals));
            for (low, high) in pairs {
                lower += u32::from(low);
                higher += u32::from(high);
                prop_assert!(lower <= higher, "{}", rule);
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
                prop_assert_eq!(stumbling.arrive(at), standing.arrive(latest), "{}", rule);
            }
        }
    }

    #[test]
    fn every_burst_is_read_back(burst in any::<u32>()) {
        let rule = Rule::LeakyBucket { burst };
        prop_assert_eq!(rule.to_string().parse(), Ok(rule));
    }
}
