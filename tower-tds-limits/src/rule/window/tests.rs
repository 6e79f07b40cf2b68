use std::{num::NonZeroU32, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::rule::tests::{Event, UnderWay, fates};

const HOLD: Duration = Duration::from_millis(1_002);

fn two_a_second() -> Window {
    Window::new(Quota::per_second(
        NonZeroU32::new(2).expect("2 is not zero"),
    ))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const START: Tick = Tick::ZERO;

/// Window, and what a counter of the same limit has to fit.
struct Rule {
    window: Window,
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
            limit: limit.get(),
            proofs: Vec::new(),
            granted: 0,
        }
    }

    fn opens_at(&self, now: Tick) -> Option<Tick> {
        let opens = Some(self.window.opens_at()).filter(|at| *at < Tick::NEVER)?;
        Some(opens.max(self.window.counter_opens_at(now)))
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
        let period = self.window.hold;
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
fn old_proofs_are_dropped_before_the_window_grows() {
    for apart in [HOLD, HOLD * 10] {
        let mut window = two_a_second();
        for n in 0..10_000 {
            let now = START + apart * n;
            window.grant();
            window.prove(now);
            assert!(window.opens_at() <= now);
        }
        assert!(window.runs.capacity() <= 8, "{}", window.runs.capacity());
        assert_eq!(window.before(window.runs.len()), 10_000);
    }
}

#[test]
fn held_requests_are_the_largest_sum_of_any_alignment() {
    let mut rule = Rule::new(50);
    for at in [0, 0, 0, 400, 900, 900] {
        rule.grant();
        rule.prove(START + ms(at));
    }
    rule.grant();
    let end = START + HOLD;
    for now in [START + ms(900), end, end + ms(300), end + ms(1_500)] {
        // The definition counts one more.
        let expected = rule.largest_sum(now) - 1.0;
        let held = rule.window.largest_sum(now) as f64;
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
    assert!(
        rule.window.runs.len() < 1_000,
        "two holds and the growth of the buffer"
    );
    // The last of them fits every alignment as exactly as in a small window.
    rule.granted -= 1;
    rule.proofs.pop();
    let sum = rule.largest_sum(now);
    assert!(sum <= 2_000.0 + 1e-6, "{sum}");
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
