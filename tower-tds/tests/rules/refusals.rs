//! Services that refuse nevertheless, because they are stricter than assumed, because a stranger uses the
//! quota, or for another reason. The bars are for the refusals, and for the requests that are still sent.

use std::{num::NonZeroU32, time::Duration};

use tds_sim::Rule;
use tower_tds::{Limits, layers::limits::Quota};

use crate::{
    judge::Counting,
    network::Network,
    world::{Load, World},
};

/// A quick service that counts in this way.
fn near(counting: Counting) -> World {
    let network = Network::new("5ms", "uniform:0ms:10ms", "60ms");
    World::new(counting, network)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_a_burst_or_with_a_small_one_refuses_a_few_and_lets_most_of_the_rate_pass()
 {
    for (burst, base, jitter, service, most, least) in [
        (0, "1ms", "none", "none", 14, 30.0),
        (0, "1ms", "uniform:0ms:5ms", "none", 15, 25.0),
        (0, "1ms", "none", "800ms", 14, 5.0),
        (0, "1ms", "stall:5s:300ms", "80ms", 45, 9.0),
        (5, "1ms", "stall:5s:300ms", "80ms", 5, 0.0),
    ] {
        for seed in 1..=4 {
            let counting = Counting::of_50(Rule::LeakyBucket { burst });
            let world = World::new(counting, Network::new(base, jitter, service));
            let seen = world.seeded(seed).run(Limits::default(), CALLS).await;
            let is_kept = seen.refused() <= most && seen.rate() >= least;
            assert!(is_kept, "{burst}, {jitter}, {service}, {seed}: {seen:?}");
        }
    }
}

const CALLS: Load = Load::Calls(600);

#[tokio::test(start_paused = true)]
async fn a_small_quota_without_a_burst_keeps_half_of_its_rate() {
    for (rule, limit) in [
        (Rule::LeakyBucket { burst: 0 }, 5),
        (Rule::SlidingLogAll, 4),
    ] {
        let counting = Counting {
            limit,
            ..Counting::of_50(rule)
        };
        let world = World::new(counting, Network::new("1ms", "uniform:0ms:5ms", "80ms"));
        let five = NonZeroU32::new(5).expect("5 is not zero");
        let limits = Limits::new(Quota::per_second(five));
        let seen = world.run(limits, Load::Calls(300)).await;
        assert!(
            seen.refused() <= 15 && seen.rate() >= 2.5,
            "{rule:?}: {seen:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stricter_service_is_found_within_sixteen_refusals() {
    for limit in [40, 30, 10] {
        let world = near(Counting {
            limit,
            ..Counting::of_50(Rule::SlidingLog)
        });
        let seen = world.run(Limits::default(), Load::Busy(secs(9 * 60))).await;
        let least = 0.7 * f64::from(limit);
        assert!(
            seen.refused() <= 16 && seen.rate() >= least,
            "{limit}: {seen:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn beside_a_stranger_few_are_refused_and_a_tenth_of_the_rate_is_left() {
    let half = secs(30 * 60);
    for (rule, bars) in [
        (Rule::SlidingLog, [0.001, 0.006, 0.05]),
        (Rule::LeakyBucket { burst: 10 }, [0.001, 0.003, 0.015]),
    ] {
        for (stranger, most) in [10.0, 25.0, 40.0].into_iter().zip(bars) {
            let mut world = near(Counting::of_50(rule));
            world.stranger = stranger;
            let seen = world.run(Limits::default(), Load::Busy(half)).await;
            let part = seen.refused() as f64 / seen.calls() as f64;
            let is_kept = part <= most && seen.rate() >= 5.0;
            assert!(is_kept, "{rule:?}, {stranger}/s: {part:.5}, {seen:?}");
        }
    }
}

/// For example a locked resource, which no rate would avoid.
#[tokio::test(start_paused = true)]
async fn refusals_for_another_reason_leave_a_sixth_and_are_forgotten_in_ten_minutes() {
    for (other, hours, least) in [(0.01, 6, 5.0), (0.05, 1, 5.0), (0.2, 1, 3.0)] {
        let mut world = near(Counting::of_50(Rule::SlidingLog));
        let lasts = secs(hours * 3_600);
        (world.other, world.other_until) = (other, lasts);
        let load = Load::Busy(lasts + secs(1_200));
        let seen = world.run(Limits::default(), load).await;
        let during = seen.rate_between(Duration::ZERO, lasts);
        let after = seen.rate_between(lasts + secs(615), lasts + secs(1_200));
        let case = format!("{other}: {during:.1}/s, then {after:.1}/s");
        assert!(during >= least && after >= 40.0, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn five_calls_a_second_hardly_wait_beside_refusals_for_another_reason() {
    for (other, most) in [(0.01, secs(1)), (0.02, secs(2)), (0.05, secs(10))] {
        let mut world = near(Counting::of_50(Rule::SlidingLog));
        world.other = other;
        let seen = world.run(Limits::default(), Load::Few(secs(3_600))).await;
        let wait = seen.median_wait();
        assert!(wait <= most, "{other}: {wait:?}");
    }
}
