#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

mod properties;

use std::num::NonZeroU32;

use super::*;

const MS: u64 = 1_000_000;

const START: Tick = Tick::ZERO.plus(5_000 * MS);

fn jitter() -> Jitter {
    Jitter::new(Quota::per_second(
        NonZeroU32::new(50).expect("50 is not zero"),
    ))
}

/// An answer every 20 ms for so many seconds, between 10 ms and `most` late.
fn answers(jitter: &mut Jitter, from: Tick, seconds: u64, most: u64) -> Tick {
    let mut now = from;
    for n in 0..seconds * 50 {
        now = now.plus(20 * MS);
        jitter.learn(now, if n % 7 == 0 { most } else { 10 * MS });
    }
    now
}

#[test]
fn it_says_nothing_until_it_has_seen_enough() {
    let mut jitter = jitter();
    assert_eq!(jitter.spacing(START), Spacing::Unknown);
    let now = answers(&mut jitter, START, 9, 15 * MS);
    assert_eq!(jitter.spacing(now), Spacing::Unknown);
    let now = answers(&mut jitter, now, 2, 15 * MS);
    assert_ne!(jitter.spacing(now), Spacing::Unknown);
}

#[test]
fn sends_are_apart_by_the_period_and_the_jitter_over_the_limit() {
    let mut jitter = jitter();
    let now = answers(&mut jitter, START, 30, 15 * MS);
    let interval = (1_002 + 5 + 2) * MS / 50;
    jitter.grant(now);
    assert_eq!(jitter.spacing(now), Spacing::Alone(now.plus(interval)));
    // A late timer does not add up, and a pause is not made good.
    jitter.grant(now.plus(interval + MS));
    assert_eq!(jitter.spacing(now), Spacing::Alone(now.plus(2 * interval)));
    jitter.grant(now.plus(500 * MS));
    let after = now.plus(500 * MS + interval);
    assert_eq!(jitter.spacing(now), Spacing::Alone(after));
    jitter.withdraw();
    assert_eq!(jitter.spacing(now), Spacing::Alone(now.plus(500 * MS)));
}

#[test]
fn for_a_period_the_proven_rules_hold_as_well() {
    let mut jitter = jitter();
    let mut now = START;
    while jitter.spacing(now) == Spacing::Unknown {
        now = answers(&mut jitter, now, 1, 15 * MS);
    }
    assert!(matches!(jitter.spacing(now), Spacing::And(_)));
    assert!(matches!(
        jitter.spacing(now.plus(1_002 * MS)),
        Spacing::Alone(_)
    ));
}

#[test]
fn a_stall_ends_it_and_is_forgotten_after_a_while() {
    let mut jitter = jitter();
    let now = answers(&mut jitter, START, 30, 15 * MS);
    jitter.learn(now, 310 * MS);
    assert_eq!(jitter.spacing(now), Spacing::Unknown);
    let now = answers(&mut jitter, now, 9, 15 * MS);
    assert_eq!(jitter.spacing(now), Spacing::Unknown);
    let now = answers(&mut jitter, now, 20, 15 * MS);
    assert_ne!(jitter.spacing(now), Spacing::Unknown);
}
