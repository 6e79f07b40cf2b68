//! Refusals for hours: unrelated to the rate, or of a stricter service.

use std::collections::VecDeque;

use super::*;

/// Runs a backlogged client against responses after 100 ms. Returns the number of calls.
fn calls_within(
    length: Duration,
    account: &mut Account,
    mut refuses: impl FnMut(Duration) -> bool,
) -> (usize, usize) {
    let start = Instant::now();
    let (mut answers, mut grants) = (VecDeque::new(), VecDeque::new());
    let (mut calls, mut refused) = (0, 0);
    let mut now = Duration::ZERO;
    while now < length {
        while answers.front().is_some_and(|(at, _)| *at <= now) {
            let (at, outcome) = answers.pop_front().expect("it was there");
            let grant = grants.pop_front().expect("it was granted");
            if outcome == Outcome::RateExceeded {
                refuse(account, start + at, grant);
            } else {
                account.prove_by_head(start + at, grant, outcome, true);
            }
        }
        let next = answers.front().map(|(at, _)| *at);
        match account.opens(Line::Back, start + now) {
            Opens::Now => {
                grants.push_back(granted(account, start + now));
                calls += 1;
                let outcome = if refuses(now) {
                    refused += 1;
                    Outcome::RateExceeded
                } else {
                    Outcome::Accepted
                };
                answers.push_back((now + ms(100), outcome));
            }
            Opens::At(at) => now = next.map_or(at - start, |next| next.min(at - start)),
            Opens::OnReturn => now = next.expect("someone holds the permits"),
        }
    }
    (calls - refused, refused)
}

/// Two hours, of which an unoptimised build takes a third for one seed.
const LONG: Duration = Duration::from_secs(if cfg!(debug_assertions) {
    40 * 60
} else {
    2 * 60 * 60
});

#[test]
fn rare_unrelated_refusals_cost_at_most_a_tenth() {
    let free = Account::new(&Limits::default());
    let (best, _) = calls_within(LONG, &mut { free }, |_| false);
    for seed in 1..=if cfg!(debug_assertions) { 1 } else { 8 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut account = Account::new(&Limits::default());
        let (accepted, refused) = calls_within(LONG, &mut account, |_| rng.u32(..1_000) == 0);
        let share = accepted as f64 / best as f64;
        assert!(share >= 0.9, "seed {seed}: {share}, {refused} refused");
    }
}

/// A service that accepts at most this many in any second, and does not count refused ones.
fn log_of(limit: usize) -> impl FnMut(Duration) -> bool {
    let mut counted: VecDeque<Duration> = VecDeque::new();
    move |now| {
        counted.retain(|at| *at + ms(1_000) > now);
        let over = counted.len() >= limit;
        if !over {
            counted.push_back(now);
        }
        over
    }
}

#[test]
fn stricter_service_is_found_within_sixteen_refusals() {
    for limit in [40, 30, 10] {
        let mut account = Account::new(&Limits::default());
        let (_, found) = calls_within(Duration::from_secs(9 * 60), &mut account, log_of(limit));
        assert!((3..=16).contains(&found), "{limit}: {found}");
        assert!(account.rung() > Rung::Proven, "{limit}");
    }
}

/// A log of 50 in any second, which a stranger fills as well, at random times.
fn log_with_stranger(rate: f64, seed: u64) -> impl FnMut(Duration) -> bool {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut next = Duration::ZERO;
    let mut log = log_of(50);
    move |now| {
        while next <= now {
            log(next);
            next += Duration::from_secs_f64(-rng.f64().max(1e-9).ln() / rate);
        }
        log(now)
    }
}

/// Refusals in nine minutes: some lead to a lower rung, and a few remain there. The requests in
/// flight at a refusal are refused together, so each move takes more than three.
#[test]
fn second_client_on_the_quota_costs_at_most_45_refusals() {
    for (rate, most) in [(15.0, 20), (25.0, 40), (35.0, 45)] {
        for seed in 1..=8 {
            let mut account = Account::new(&Limits::default());
            let log = log_with_stranger(rate, seed);
            let (_, found) = calls_within(Duration::from_secs(9 * 60), &mut account, log);
            assert!((3..=most).contains(&found), "{rate}, seed {seed}: {found}");
            assert!(account.rung() > Rung::Proven, "{rate}, seed {seed}");
        }
    }
}
