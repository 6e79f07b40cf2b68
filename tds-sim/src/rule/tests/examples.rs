use std::time::Duration;

use super::{ALL, INSTANT, SECOND, accepted_of, ms, us};
use crate::rule::Rule;

#[test]
fn fixed_windows_begin_at_multiples_of_the_interval() {
    let mut meter = Rule::FixedWindow.meter(50, SECOND);
    assert_eq!(accepted_of(60, &mut meter, ms(300)), 50);
    assert!(!meter.arrive(SECOND - INSTANT));
    assert!(meter.arrive(SECOND));
    assert_eq!(accepted_of(60, &mut meter, ms(1001)), 49);
    assert!(meter.arrive(ms(7_000)));
}

#[test]
fn fixed_windows_let_twice_the_limit_pass_across_a_boundary() {
    let mut meter = Rule::FixedWindow.meter(50, SECOND);
    assert_eq!(accepted_of(50, &mut meter, SECOND - INSTANT), 50);
    assert_eq!(accepted_of(51, &mut meter, SECOND), 50);
}

#[test]
fn the_log_forgets_an_arrival_when_it_is_a_second_old() {
    let mut meter = Rule::SlidingLog.meter(50, SECOND);
    assert!(meter.arrive(ms(300)));
    assert_eq!(accepted_of(50, &mut meter, ms(500)), 49);
    assert!(!meter.arrive(ms(1300) - INSTANT));
    assert!(meter.arrive(ms(1300)));
    assert!(!meter.arrive(ms(1300)));
    assert_eq!(accepted_of(60, &mut meter, ms(1500)), 49);
}

#[test]
fn the_log_does_not_count_the_refused() {
    let mut meter = Rule::SlidingLog.meter(50, SECOND);
    assert_eq!(accepted_of(1000, &mut meter, ms(0)), 50);
    assert_eq!(accepted_of(1000, &mut meter, ms(999)), 0);
    assert_eq!(accepted_of(1000, &mut meter, ms(1000)), 50);
}

#[test]
fn log_of_all_counts_refused_arrivals_for_a_second() {
    let mut meter = Rule::SlidingLogAll.meter(50, SECOND);
    assert_eq!(accepted_of(50, &mut meter, ms(0)), 50);
    assert_eq!(accepted_of(49, &mut meter, ms(600)), 0);
    // The fifty have left, their forty-nine refused followers have not.
    assert_eq!(accepted_of(10, &mut meter, ms(1000)), 1);
    // One of the ten above was accepted, but all ten count.
    assert_eq!(accepted_of(41, &mut meter, ms(1600)), 40);
}

#[test]
fn log_of_all_keeps_refusing_at_twice_the_limit() {
    let mut meter = Rule::SlidingLogAll.meter(50, SECOND);
    let accepted = (0..100_000).filter(|i| meter.arrive(ms(10) * *i)).count();
    assert_eq!(accepted, 50);
    // A second of silence ends the refusals.
    assert!(meter.arrive(ms(10) * 99_999 + SECOND));
}

#[test]
fn the_counter_weighs_the_previous_window_by_what_is_left_of_this_one() {
    let mut meter = Rule::SlidingCounter.meter(50, SECOND);
    // The window is [0.3 s, 1.3 s): it begins with the first arrival.
    assert_eq!(accepted_of(40, &mut meter, ms(300)), 40);
    // 40 * 0.75 + 20 = 50, one more is too many.
    assert_eq!(accepted_of(20, &mut meter, ms(1550)), 20);
    assert!(!meter.arrive(ms(1550)));
    // The refused one counts: it takes until 40 * 0.7 + 22 = 50, and this comes too early.
    assert!(!meter.arrive(ms(1600) - INSTANT));
    // It counts as well: 40 * 0.675 + 23 = 50.
    assert!(meter.arrive(ms(1625)));
}

#[test]
fn the_counter_refuses_a_fraction_over_the_limit() {
    let mut meter = Rule::SlidingCounter.meter(50, SECOND);
    assert_eq!(accepted_of(50, &mut meter, ms(0)), 50);
    // At its start a window has all of the previous one before it.
    assert!(!meter.arrive(ms(1000)));
    // 50 * 0.98 + 1 = 50, and a nanosecond earlier it is more.
    let mut meter = Rule::SlidingCounter.meter(50, SECOND);
    assert_eq!(accepted_of(50, &mut meter, ms(0)), 50);
    assert!(!meter.arrive(ms(1020) - INSTANT));
    // The refused request counts. The next one has to wait for 50 * 0.96 + 2 = 50.
    assert!(meter.arrive(ms(1040)));
    // Without a refused request, the exact instant is enough.
    let mut meter = Rule::SlidingCounter.meter(50, SECOND);
    assert_eq!(accepted_of(50, &mut meter, ms(0)), 50);
    assert!(meter.arrive(ms(1020)));
}

#[test]
fn counter_restarts_two_windows_after_the_last_start() {
    let mut meter = Rule::SlidingCounter.meter(50, SECOND);
    assert_eq!(accepted_of(50, &mut meter, ms(300)), 50);
    // Very little of the previous window is left, and that is enough to refuse the fiftieth.
    assert_eq!(accepted_of(50, &mut meter, ms(2300) - INSTANT), 49);

    let mut meter = Rule::SlidingCounter.meter(50, SECOND);
    assert_eq!(accepted_of(50, &mut meter, ms(300)), 50);
    assert_eq!(accepted_of(51, &mut meter, ms(2300)), 50);
    // The window is [2.3 s, 3.3 s) now, with the refused one: 51 * 0.98 + 1 = 50.98,
    // 51 * 0.96 + 2 = 50.96, and 51 * 0.92 + 3 = 49.92.
    assert!(!meter.arrive(ms(3320)));
    assert!(!meter.arrive(ms(3340)));
    assert!(meter.arrive(ms(3380)));
}

#[test]
fn counter_windows_stay_aligned_to_the_first_arrival() {
    let mut meter = Rule::SlidingCounter.meter(50, SECOND);
    assert!(meter.arrive(ms(300)));
    assert_eq!(accepted_of(49, &mut meter, ms(1299)), 49);
    // The window is [1.3 s, 2.3 s), though its first arrival comes at 1.8 s: 25 are weighed in.
    assert_eq!(accepted_of(30, &mut meter, ms(1800)), 25);
    // And the next one [2.3 s, 3.3 s): 30 * 0.5 + 35 = 50.
    assert_eq!(accepted_of(36, &mut meter, ms(2800)), 35);
}

#[test]
fn the_bucket_takes_its_burst_and_one_at_an_instant() {
    let mut meter = Rule::LeakyBucket { burst: 10 }.meter(50, SECOND);
    assert_eq!(accepted_of(60, &mut meter, ms(500)), 11);
    assert!(!meter.arrive(ms(519)));
    assert!(meter.arrive(ms(520)));
    assert!(!meter.arrive(ms(520)));
    // Nine drops and a half have drained.
    assert_eq!(accepted_of(60, &mut meter, ms(710)), 9);
    assert_eq!(accepted_of(60, &mut meter, ms(60_000)), 11);
}

#[test]
fn the_bucket_without_burst_requires_twenty_milliseconds_between_arrivals() {
    let mut meter = Rule::LeakyBucket { burst: 0 }.meter(50, SECOND);
    assert!(meter.arrive(ms(5)));
    assert!(!meter.arrive(ms(24)));
    // The refused requests left nothing behind.
    assert!(meter.arrive(ms(25)));
    assert!(meter.arrive(ms(45)));
    assert!(!meter.arrive(ms(64)));
}

#[test]
fn the_bucket_reads_a_clock_of_whole_milliseconds() {
    let mut meter = Rule::LeakyBucket { burst: 0 }.meter(50, SECOND);
    // 19.1 ms apart, and yet 20 ms by its clock.
    assert!(meter.arrive(us(5_900)));
    assert!(meter.arrive(us(25_000)));
    // 19.9 ms apart, and 19 ms by its clock.
    assert!(!meter.arrive(us(44_900)));
}

#[test]
fn the_bucket_keeps_levels_in_thousandths_rounded_up() {
    // A third of a request per second is 333 thousandths: three seconds do not drain one.
    let mut meter = Rule::LeakyBucket { burst: 0 }.meter(1, SECOND * 3);
    assert!(meter.arrive(ms(0)));
    assert!(!meter.arrive(ms(3003)));
    assert!(meter.arrive(ms(3004)));
}

#[test]
fn a_request_in_flight_counts_until_it_ended_a_second_ago() {
    let mut meter = Rule::InFlight.meter(2, SECOND);
    assert!(meter.arrive(ms(0)));
    assert!(meter.arrive(ms(100)));
    assert!(!meter.arrive(ms(5_000)));
    meter.end(ms(0), ms(6_000));
    assert!(!meter.arrive(ms(7_000) - INSTANT));
    assert!(meter.arrive(ms(7_000)));
    assert!(!meter.arrive(ms(7_000)));
    meter.end(ms(7_000), ms(7_000));
    assert!(!meter.arrive(ms(7_999)));
    assert!(meter.arrive(ms(8_000)));
}

#[test]
fn an_end_without_an_arrival_changes_nothing() {
    let mut meter = Rule::InFlight.meter(1, SECOND);
    meter.end(ms(0), ms(10));
    assert!(meter.arrive(ms(20)));
    assert!(!meter.arrive(ms(30)));
}

#[test]
fn a_request_does_not_end_before_it_arrived() {
    let mut meter = Rule::InFlight.meter(1, SECOND);
    assert!(meter.arrive(ms(500)));
    meter.end(ms(500), ms(400));
    assert!(!meter.arrive(ms(1_499)));
    assert!(meter.arrive(ms(1_500)));
}

#[test]
fn earlier_time_counts_as_the_latest_one() {
    for rule in ALL {
        let mut meter = rule.meter(50, SECOND);
        assert!(meter.arrive(ms(5_000)), "{rule:?}");
        // None of these lands in a window, a second or a bucket of the past.
        let accepted = accepted_of(100, &mut meter, ms(3_900)) + 1;
        let mut steady = rule.meter(50, SECOND);
        assert_eq!(
            accepted,
            accepted_of(101, &mut steady, ms(5_000)),
            "{rule:?}"
        );
        meter.end(ms(5_000), ms(1));
    }
}

#[test]
fn extreme_arguments_do_not_panic() {
    for rule in ALL
        .into_iter()
        .chain([Rule::LeakyBucket { burst: u32::MAX }])
    {
        for limit in [0, 1, u32::MAX] {
            for per in [Duration::ZERO, INSTANT, SECOND, Duration::MAX] {
                let mut meter = rule.meter(limit, per);
                for at in [Duration::ZERO, INSTANT, SECOND, Duration::MAX, SECOND] {
                    meter.arrive(at);
                    meter.arrive(at);
                    meter.end(at, Duration::MAX);
                    meter.end(at, Duration::ZERO);
                }
            }
        }
    }
}

#[test]
fn zero_limit_refuses_every_arrival() {
    for rule in ALL {
        if matches!(rule, Rule::LeakyBucket { .. }) {
            continue; // It has a burst, and one in service.
        }
        let mut meter = rule.meter(0, SECOND);
        assert!(!meter.arrive(ms(0)), "{rule:?}");
        assert!(!meter.arrive(ms(9_000)), "{rule:?}");
    }
}

#[test]
fn each_rule_is_read_from_its_text() {
    for (text, rule) in [
        ("fixed", Rule::FixedWindow),
        ("log", Rule::SlidingLog),
        ("log-all", Rule::SlidingLogAll),
        ("counter", Rule::SlidingCounter),
        ("leaky:0", Rule::LeakyBucket { burst: 0 }),
        ("leaky:10", Rule::LeakyBucket { burst: 10 }),
        ("in-flight", Rule::InFlight),
    ] {
        assert_eq!(text.parse(), Ok(rule));
    }
}

#[test]
fn unknown_rule_error_lists_every_rule() {
    for text in [
        "",
        "Fixed",
        "leaky",
        "leaky:",
        "leaky:-1",
        "leaky:1.5",
        "log ",
    ] {
        let error = text.parse::<Rule>().expect_err(text).to_string();
        assert!(error.contains(&format!("`{text}`")), "{error}");
        for name in [
            "fixed",
            "log,",
            "log-all",
            "counter",
            "leaky:BURST",
            "in-flight",
        ] {
            assert!(error.contains(name), "{error}");
        }
    }
}
