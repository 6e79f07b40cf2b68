use std::{num::NonZeroU32, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    limits::Quota,
    rule::tests::{Event, UnderWay, fates},
};

const PERIOD: Duration = Duration::from_millis(1_002);

const START: Tick = Tick::ZERO;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Window that a counter reads.
struct Rule {
    window: Window,
    counter: Counter,
    limit: u32,
    /// All proofs so far, for the definition.
    proofs: Vec<Tick>,
    granted: usize,
}

impl Rule {
    fn new(limit: u32) -> Self {
        let limit = NonZeroU32::new(limit).expect("a limit is not zero");
        let window = Window::new(Quota::per_second(limit));
        Self {
            window,
            counter: Counter::new(),
            limit: limit.get(),
            proofs: Vec::new(),
            granted: 0,
        }
    }

    fn opens_at(&mut self, now: Tick) -> Option<Tick> {
        self.window.advance(now);
        let opens = Some(self.window.opens_at()).filter(|at| *at < Tick::NEVER)?;
        Some(opens.max(self.counter.opens_at(&self.window, now)))
    }

    fn grant(&mut self) {
        self.window.grant();
        self.granted += 1;
    }

    fn withdraw(&mut self) {
        self.window.withdraw();
        self.granted -= 1;
    }

    fn prove(&mut self, at: Tick) {
        self.window.prove(at);
        self.proofs.push(at);
    }

    /// The largest sum of any alignment if one more is counted at `now`, as the definition has
    /// it: windows that begin at a proof, just before a period after one, or now.
    fn largest_sum(&self, now: Tick) -> f64 {
        let period = self.window.hold();
        let unproven = (self.granted - self.proofs.len()) as f64;
        let begins = self
            .proofs
            .iter()
            .flat_map(|proof| [*proof, proof.plus(period - 1)])
            .chain([now])
            .filter(|phi| *phi <= now && phi.plus(period) > now);
        begins
            .map(|phi| {
                let current = self.proofs.iter().filter(|at| **at >= phi).count();
                let previous = self
                    .proofs
                    .iter()
                    .filter(|at| **at < phi && at.plus(period) > phi)
                    .count();
                let x = now.since(phi) as f64 / period as f64;
                unproven + 1.0 + current as f64 + (1.0 - x) * previous as f64
            })
            .fold(0.0, f64::max)
    }
}

#[test]
fn request_after_a_burst_waits_for_the_weighted_old_window() {
    let mut rule = Rule::new(50);
    for _ in 0..50 {
        rule.grant();
        rule.prove(START);
    }
    // Nothing weighs more than the proof window until it opens.
    assert_eq!(rule.opens_at(START), Some(START + PERIOD));
    // A window that began just before a period after the burst holds all fifty of it; it weighs
    // 49 a fiftieth of a period later.
    let expected = START + PERIOD + PERIOD / 50;
    assert_eq!(rule.opens_at(START + PERIOD), Some(expected));
    assert!(rule.opens_at(expected).is_some_and(|at| at <= expected));
}

#[test]
fn counter_forgets_proofs_after_two_periods() {
    let mut rule = Rule::new(5);
    for n in 0..10_000 {
        let now = START + PERIOD * n;
        assert!(rule.opens_at(now).is_some_and(|at| at <= now));
        rule.grant();
        rule.prove(now);
    }
    assert!(rule.window.first() >= 10_000 - 8);
}

#[test]
fn held_requests_are_the_largest_sum_of_any_alignment() {
    let mut rule = Rule::new(50);
    for at in [0, 0, 0, 400, 900, 900] {
        rule.grant();
        rule.prove(START + ms(at));
    }
    rule.grant();
    let end = START + PERIOD;
    for now in [START + ms(900), end, end + ms(300), end + ms(1_500)] {
        rule.window.advance(now);
        // The definition counts one more.
        let expected = rule.largest_sum(now) - 1.0;
        let held = largest_sum(&rule.window, now) as f64;
        assert!(
            held >= expected && held < expected + 1.0,
            "{held} {expected}"
        );
    }
}

#[test]
fn rounded_proofs_of_a_large_window_fit_every_alignment() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut rule = Rule::new(2_000);
    let mut now = START;
    for _ in 0..20_000 {
        now = now.plus(rng.u64(0..900_000));
        while let Some(at) = rule.opens_at(now)
            && at > now
        {
            now = at;
        }
        rule.grant();
        rule.prove(now);
    }
    let rate = 20_000.0 / now.since(START) as f64 * 1e9;
    assert!(rate > 1_940.0, "{rate}");
    // The last of them fits every alignment as exactly as in a small window.
    rule.granted -= 1;
    rule.proofs.pop();
    let sum = rule.largest_sum(now);
    assert!(sum <= 2_000.0 + 1e-6, "{sum}");
}

#[test]
fn lowered_limit_opens_in_time_with_rounded_proofs() {
    let at = |ms: u64| START.plus(ms * 1_000_000);
    let mut rule = Rule::new(1_000);
    for _ in 0..1_000 {
        rule.grant();
    }
    rule.prove(at(1));
    for _ in 0..500 {
        rule.prove(at(20));
    }
    rule.window.limit_to(Quota::per_second(
        NonZeroU32::new(800).expect("800 is not zero"),
    ));
    for now in [21, 30, 40] {
        let opens = rule.opens_at(at(now)).expect("as many are proven");
        assert!(opens <= at(2_100), "{opens:?} at {now} ms");
    }
}

proptest! {
    /// Always backlogged, with random requests: each grant fits every alignment, and a moment
    /// earlier it would have exceeded one.
    #[test]
    fn counter_grants_as_soon_as_every_alignment_fits(
        limit in 1_u32..12,
        fates in fates(0..2_500, 0..500, 80),
    ) {
        let mut rule = Rule::new(limit);
        let mut now = START;
        let mut coming = UnderWay::default();
        for fate in fates {
            loop {
                for (at, event) in coming.happened(now) {
                    match event {
                        Event::Proven => rule.prove(at),
                        Event::Withdrawn => rule.withdraw(),
                    }
                }
                let next = coming.next();
                match rule.opens_at(now) {
                    Some(at) if at <= now => break,
                    None => now = next.expect("someone is unproven"),
                    Some(at) => {
                        if next.is_none_or(|next| next > at) {
                            let before = rule.largest_sum(at.minus(1_000_000));
                            prop_assert!(before > f64::from(limit) - 1e-6, "{before} at {limit}");
                        }
                        now = next.map_or(at, |next| next.min(at));
                    }
                }
            }
            let sum = rule.largest_sum(now);
            prop_assert!(sum <= f64::from(rule.limit) + 1e-6, "{sum} at {limit}");
            rule.grant();
            coming.add(now, fate);
        }
    }
}
