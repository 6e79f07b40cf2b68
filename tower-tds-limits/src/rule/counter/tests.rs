#![expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "an overflow in a test is a failed test"
)]

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

const PERIOD: Duration = Duration::from_millis(1_002);

fn counter(limit: u32) -> Counter {
    Counter::new(Quota::per_second(
        NonZeroU32::new(limit).expect("a limit is not zero"),
    ))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The largest sum of any alignment if one more is counted at `now`, as the rule's definition
/// has it: windows that begin at a proof, just before a period after one, or now.
fn largest_sum(counter: &Counter, now: Instant) -> f64 {
    let unproven = counter.granted - counter.forgotten - counter.proofs.len() as u64;
    let nearly = Duration::from_nanos(1);
    let begins = counter
        .proofs
        .iter()
        .flat_map(|proof| [*proof, *proof + PERIOD - nearly])
        .chain([now])
        .filter(|phi| *phi <= now && *phi + PERIOD > now);
    begins
        .map(|phi| {
            let current = counter.proofs.iter().filter(|at| **at >= phi).count();
            let previous = counter
                .proofs
                .iter()
                .filter(|at| **at < phi && **at + PERIOD > phi)
                .count();
            let x = (now - phi).as_secs_f64() / PERIOD.as_secs_f64();
            unproven as f64 + 1.0 + current as f64 + (1.0 - x) * previous as f64
        })
        .fold(0.0, f64::max)
}

#[test]
fn the_first_of_them_pass_and_the_rest_wait_for_proofs() {
    let start = Instant::now();
    let mut counter = counter(3);
    for _ in 0..3 {
        assert_eq!(counter.earliest_at(start), Earliest::Now);
        counter.grant();
    }
    assert_eq!(counter.earliest_at(start + ms(60_000)), Earliest::OnReturn);
}

#[test]
fn after_a_burst_one_more_waits_until_the_old_window_weighs_one_less() {
    let start = Instant::now();
    let mut counter = counter(50);
    for _ in 0..50 {
        counter.grant();
        counter.prove_at(start);
    }
    // A window that began just before a period after the burst holds all fifty of it; it weighs
    // 49 a fiftieth of a period later.
    let expected = start + PERIOD + PERIOD / 50;
    assert_eq!(counter.earliest_at(start), Earliest::At(expected));
    assert_eq!(counter.earliest_at(expected), Earliest::Now);
}

#[test]
fn what_is_two_periods_old_is_forgotten() {
    let start = Instant::now();
    let mut counter = counter(5);
    for n in 0..10_000 {
        counter.grant();
        counter.prove_at(start + PERIOD * n);
    }
    assert!(counter.proofs.len() <= 3, "{}", counter.proofs.len());
    assert_eq!(counter.earliest_at(start + PERIOD * 10_000), Earliest::Now);
}

#[test]
fn a_withdrawn_request_makes_room_at_once() {
    let start = Instant::now();
    let mut counter = counter(2);
    counter.grant();
    counter.grant();
    counter.withdraw();
    assert_eq!(counter.earliest_at(start), Earliest::Now);
}

proptest! {
    /// Always backlogged, with any times to the proofs: each grant fits every alignment, and a
    /// moment earlier one of them would have been exceeded.
    #[test]
    fn the_earliest_instant_is_right_and_not_later_than_it_must_be(
        limit in 1_u32..12,
        delays in prop::collection::vec(0_u64..2_500, 1..80),
    ) {
        let start = Instant::now();
        let mut counter = counter(limit);
        let mut now = start;
        let mut proofs: Vec<Instant> = Vec::new();
        for delay in delays {
            loop {
                proofs.sort_unstable();
                while proofs.first().is_some_and(|at| *at <= now) {
                    counter.prove_at(proofs.remove(0));
                }
                let next = proofs.first().copied();
                match counter.earliest_at(now) {
                    Earliest::Now => break,
                    Earliest::OnReturn => now = next.expect("someone is unproven"),
                    Earliest::At(at) => {
                        // With no proof in between, the instant is exact.
                        if next.is_none_or(|next| next > at) {
                            let before = largest_sum(&counter, at - ms(1));
                            prop_assert!(before > f64::from(limit) - 1e-6, "{before} at {limit}");
                        }
                        now = next.map_or(at, |next| next.min(at));
                    }
                }
            }
            let sum = largest_sum(&counter, now);
            prop_assert!(sum <= f64::from(limit) + 1e-6, "{sum} at {limit}");
            counter.grant();
            proofs.push(now + ms(delay));
        }
    }
}
