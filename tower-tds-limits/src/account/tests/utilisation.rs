//! Throughput of a backlogged client beside the simulated optimum of a safe client, row by row, as
//! a share of 50 a second.

use super::*;

/// The delay that the network adds to the 10 ms of each way.
#[derive(Debug, Clone, Copy)]
enum Way {
    None,
    UpTo(u64),
    /// Median 10 ms, one in a hundred above 200 ms.
    Lognormal,
    /// Everything stands still for 300 ms of each 5 s.
    Stalls,
}

const WAYS: [Way; 5] = [
    Way::None,
    Way::UpTo(5),
    Way::UpTo(50),
    Way::Lognormal,
    Way::Stalls,
];

impl Way {
    fn sample(self, rng: &mut fastrand::Rng, now: Duration) -> Duration {
        let added = match self {
            Self::None => Duration::ZERO,
            Self::UpTo(most) => Duration::from_micros(rng.u64(0..=most * 1_000)),
            // The 99th percentile is 2.326 sigma above the median.
            Self::Lognormal => lognormal(rng, 0.010, 20.0_f64.ln() / 2.326),
            Self::Stalls => {
                let phase = now.as_secs_f64() % 5.0;
                Duration::from_secs_f64(if phase >= 4.7 { 5.0 - phase } else { 0.0 })
            }
        };
        ms(10) + added
    }
}

fn lognormal(rng: &mut fastrand::Rng, median: f64, sigma: f64) -> Duration {
    let normal =
        (-2.0 * rng.f64().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
    Duration::from_secs_f64((median * (sigma * normal).exp()).min(60.0))
}

/// The share that is used with this median service time in milliseconds (sigma 0.5).
fn used(limits: &Limits, way: Way, median: u32) -> f64 {
    let delays = |rng: &mut fastrand::Rng, now: Duration| {
        let there = way.sample(rng, now);
        let service = lognormal(rng, f64::from(median) / 1e3, 0.5);
        let back = way.sample(rng, now + there + service);
        (there, service + back)
    };
    let (_, last) = counted_within(limits, 20_000, 1, delays);
    20_000.0 / last.as_secs_f64() / 50.0
}

fn assert_near(share: f64, bound: f64, what: &str) {
    assert!((share - bound).abs() < 0.01, "{what}: {share} of {bound}");
}

#[test]
fn default_throughput_matches_the_simulated_optimum_at_each_service_time() {
    let rows = [
        (20, 0.920, 0.868),
        (80, 0.849, 0.813),
        (300, 0.686, 0.665),
        (1_000, 0.436, 0.429),
    ];
    for (median, calm, rough) in rows {
        for (way, bound) in [(Way::None, calm), (Way::Lognormal, rough)] {
            let share = used(&Limits::default(), way, median);
            assert_near(share, bound, &format!("{median} ms, {way:?}"));
        }
    }
}

#[test]
fn sixty_in_flight_are_as_fast_as_five_hundred() {
    let bounds = [0.849, 0.846, 0.813, 0.813, 0.816];
    for (way, bound) in WAYS.into_iter().zip(bounds) {
        for in_flight in [60, 500] {
            let limits = Limits::default().in_flight(count(in_flight));
            let share = used(&limits, way, 80);
            assert_near(share, bound, &format!("{in_flight} in flight, {way:?}"));
        }
    }
}

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
