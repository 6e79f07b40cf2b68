//! Throughput of a backlogged client with a large quota.

use super::*;

/// Nine places would be 98 a second at 1,000/s and responses after 100 ms.
#[test]
fn large_quotas_reach_four_fifths_of_the_window_rule() {
    for quota in [50, 60, 200, 1_000, 5_000] {
        for took in [20, 100, 500] {
            let rate = |rules| {
                let limits = Limits::new(Quota::per_second(count(quota)));
                let limits = limits.rules(rules).in_flight(count(quota));
                let half = ms(took / 2);
                let (_, last) = counted_within(&limits, 20 * quota, 1, |_, _| (half, half));
                f64::from(20 * quota) / last.as_secs_f64()
            };
            let (window, all) = (rate(Rules::window()), rate(Rules::default()));
            assert!(
                all >= 0.8 * window,
                "{quota}/s, {took} ms: {all} of {window}"
            );
        }
    }
}
