#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test fails if it overflows"
)]

use std::time::Duration;

use fastrand::Rng;

use super::{Delay, parse_duration};

const SAMPLES: usize = 100_000;
const UNTIMED: Duration = Duration::ZERO;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Sorted samples of one seed.
fn samples(delay: &str) -> Vec<Duration> {
    let delay: Delay = delay.parse().unwrap();
    let mut rng = Rng::with_seed(20_240_501);
    let mut samples: Vec<_> = (0..SAMPLES)
        .map(|_| delay.sample(UNTIMED, &mut rng))
        .collect();
    samples.sort_unstable();
    samples
}

/// Returns the delay that `percent` in a hundred of the sorted `samples` do not exceed.
fn percentile(samples: &[Duration], percent: usize) -> Duration {
    samples[samples.len() * percent / 100]
}

#[track_caller]
fn assert_near(measured: Duration, expected: Duration, tolerance: f64) {
    let ratio = measured.div_duration_f64(expected);
    assert!(
        (ratio - 1.0).abs() < tolerance,
        "{measured:?} is not {expected:?}"
    );
}

#[test]
fn none_and_constant_delays_do_not_vary() {
    let mut rng = Rng::with_seed(1);
    assert_eq!(Delay::None.sample(ms(3), &mut rng), Duration::ZERO);
    assert_eq!(Delay::Constant(ms(20)).sample(ms(3), &mut rng), ms(20));
}

#[test]
fn uniform_delays_fill_their_range_evenly() {
    let samples = samples("uniform:10ms:50ms");
    assert!(samples[0] >= ms(10) && samples[SAMPLES - 1] <= ms(50));
    for percent in [1, 25, 50, 75, 99] {
        let expected = ms(10) + ms(40) * u32::try_from(percent).unwrap() / 100;
        assert_near(percentile(&samples, percent), expected, 0.02);
    }
}

#[test]
fn lognormal_delays_have_their_median_and_p99() {
    let samples = samples("lognormal:10ms:200ms");
    assert_near(percentile(&samples, 50), ms(10), 0.02);
    assert_near(percentile(&samples, 99), ms(200), 0.05);
    // By symmetry of the logarithm: 10 / 20 at the first percentile.
    assert_near(percentile(&samples, 1), Duration::from_micros(500), 0.05);
}

#[test]
fn pareto_delays_match_their_percentiles() {
    let samples = samples("pareto:5ms:1.5");
    assert!(samples[0] >= ms(5));
    // The share above `x` is (5 ms / x)^1.5: a half at 7.937 ms, a hundredth at 107.7 ms.
    assert_near(percentile(&samples, 50), Duration::from_micros(7_937), 0.02);
    assert_near(
        percentile(&samples, 99),
        Duration::from_micros(107_722),
        0.05,
    );
}

#[test]
fn heavy_tails_end_at_the_longest_delay() {
    for delay in [
        "pareto:5ms:0.1",
        "lognormal:10s:1000000s",
        "pareto:18446744073709551615s:1",
    ] {
        let samples = samples(delay);
        assert_eq!(samples[SAMPLES - 1], Delay::LONGEST, "{delay:?}");
    }
}

#[test]
fn delays_repeat_for_one_seed_and_differ_for_another() {
    for delay in ["uniform:0ms:50ms", "lognormal:10ms:200ms", "pareto:5ms:1.5"] {
        let delay: Delay = delay.parse().unwrap();
        let sequence = |seed| {
            let mut rng = Rng::with_seed(seed);
            let samples = (0..100).map(|i| delay.sample(ms(i * seed), &mut rng));
            samples.collect::<Vec<_>>()
        };
        assert_eq!(sequence(7), sequence(7), "{delay:?}");
        assert_ne!(sequence(7), sequence(8), "{delay:?}");
    }
}

#[test]
fn a_stall_releases_everything_at_its_end() {
    let delay: Delay = "stall:5s:300ms".parse().unwrap();
    let mut rng = Rng::with_seed(1);
    let mut released_at = |at: Duration| at + delay.sample(at, &mut rng);
    for period in 0..3 {
        let end = ms(5_000) * (period + 1);
        for into in (0..300).map(ms) {
            assert_eq!(released_at(end - ms(300) + into), end);
        }
        let before = end - ms(300) - Duration::from_nanos(1);
        assert_eq!(released_at(before), before);
        assert_eq!(released_at(end - Duration::from_nanos(1)), end);
        assert_eq!(released_at(end), end);
    }
}

#[test]
fn senseless_fields_do_not_panic() {
    let mut rng = Rng::with_seed(1);
    let extremes = [Duration::ZERO, ms(1), Duration::MAX];
    for a in extremes {
        for b in extremes {
            for delay in [
                Delay::Uniform { min: a, max: b },
                Delay::LogNormal { median: a, p99: b },
                Delay::Stall {
                    every: a,
                    length: b,
                },
            ] {
                for at in extremes {
                    delay.sample(at, &mut rng);
                }
            }
        }
        for alpha in [f64::NAN, f64::INFINITY, -1.0, 0.0, f64::MIN_POSITIVE] {
            let sample = Delay::Pareto { min: a, alpha }.sample(UNTIMED, &mut rng);
            assert!(sample <= Delay::LONGEST);
        }
    }
}

#[test]
fn each_form_of_a_delay_is_read() {
    let (median, p99) = (ms(10), ms(200));
    let (every, length) = (ms(5_000), ms(300));
    let (min, max) = (ms(0), ms(50));
    for (text, delay) in [
        ("none", Delay::None),
        ("20ms", Delay::Constant(ms(20))),
        ("0s", Delay::Constant(Duration::ZERO)),
        ("uniform:0s:50ms", Delay::Uniform { min, max }),
        ("lognormal:10ms:200ms", Delay::LogNormal { median, p99 }),
        ("pareto:0ms:1.5", Delay::Pareto { min, alpha: 1.5 }),
        ("stall:5s:300ms", Delay::Stall { every, length }),
    ] {
        assert_eq!(text.parse(), Ok(delay));
    }
}

#[test]
fn malformed_delay_error_shows_the_expected_form() {
    for (form, texts) in MALFORMED.lines().filter_map(|row| row.split_once(" <- ")) {
        for text in texts.split(' ') {
            let error = text.parse::<Delay>().expect_err(text).to_string();
            let expected = format!("bad delay `{text}`; use {form}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}

const MALFORMED: &str = "\
none, 20ms, uniform:MIN:MAX, <-  fast none:1ms 20ms:30ms 20 20m 1.5s
uniform:MIN:MAX, such as <- uniform:0ms uniform:0ms:1ms:2ms uniform:0:50ms uniform:0ms:-1ms uniform:50ms:10ms
lognormal:MEDIAN:P99, such as <- lognormal:50ms:10ms lognormal:0ms:10ms
stall:EVERY:LENGTH, such as <- stall::1ms stall:1s:2s stall:0s:0s
pareto:MIN:ALPHA, such as <- pareto:5ms:0 pareto:5ms:NaN pareto:5ms:inf pareto:5ms:steep";

#[test]
fn durations_have_a_whole_number_and_a_unit() {
    assert_eq!(parse_duration("5s"), Ok(ms(5_000)));
    assert_eq!(parse_duration("300us"), Ok(Duration::from_micros(300)));
    assert_eq!(parse_duration("1ns"), Ok(Duration::from_nanos(1)));
    for text in ",s,ms,5,5 s,+5s,5S,5m,99999999999999999999s,٣s".split(',') {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}
