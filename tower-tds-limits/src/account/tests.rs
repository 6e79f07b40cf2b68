mod properties;
mod shares;
mod utilisation;

use std::{cmp::Reverse, collections::BinaryHeap, num::NonZeroU32, time::Duration};

use super::*;
use crate::limits::{Burst, Rules};

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A grant at `now`.
fn granted(account: &mut Account, now: Instant) -> Granted {
    let _opens = account.opens(Priority::Normal, now);
    account.admit(Priority::Normal, None)
}

#[test]
fn token_request_waits_for_the_quota_only() {
    let now = Instant::now();
    let limits = Limits::new(Quota::per_second(count(2))).rules(Rules::window());
    let mut account = Account::new(&limits.in_flight(count(1)));
    let grant = granted(&mut account, now);
    account.prove_by_head(now, grant, Outcome::Accepted, false);
    assert_eq!(account.opens(Priority::Normal, now).0, None);
    assert!(account.is_open(Priority::High, now));
    let grant = granted(&mut account, now);
    let second = now + ms(1_002);
    assert_eq!(account.opens(Priority::High, now).0, Some(second));
    // A token request is in flight as others are.
    account.end();
    assert_eq!(account.opens(Priority::Normal, second).0, None);
    account.prove_by_end(now, grant);
    assert!(account.is_open(Priority::Normal, second));
}

/// Reproducer for L7: 10,000 an hour beside 50 a second.
#[test]
fn hourly_quota_does_not_slow_the_first_minute() {
    let hour = Quota::new(count(10_000), Duration::from_secs(3_600)).expect("an hour");
    let limits = Limits::default().also(hour).in_flight(count(500));
    let (counted, _) = counted_within(&limits, 2_800, 1, |_, _| (ms(10), ms(90)));
    let first = counted.partition_point(|at| *at < Duration::from_secs(60));
    assert!(first >= 2_500, "{first} in the first minute");
}

#[test]
fn lost_request_does_not_prove_other_requests() {
    let start = Instant::now();
    let limits = Limits::default();
    let mut account = Account::new(&limits);
    let grants: Vec<Granted> = (0..10).map(|_| granted(&mut account, start)).collect();
    let now = start + ms(500);
    for grant in &grants[..5] {
        account.lose(now, *grant, ms(0));
    }
    // Five places are back, except for the level of the lost requests.
    account.opens(Priority::Normal, now);
    let opened = (0..200).filter(|ms_later| {
        let now = now + ms(*ms_later);
        let open = account.is_open(Priority::Normal, now);
        if open {
            granted(&mut account, now);
        }
        open
    });
    assert_eq!(opened.count(), 5);
}

#[test]
fn a_lower_rate_keeps_counting_requests_in_flight() {
    let start = Instant::now();
    let mut account = Account::new(&Limits::default());
    let grants: Vec<Granted> = (0..8).map(|_| granted(&mut account, start)).collect();
    account.prove_by_head(start + ms(100), grants[0], Outcome::RateExceeded, true);
    // Five may be without evidence, and seven are.
    let later = start + ms(1_200);
    assert!(!account.is_open(Priority::Normal, later));
    for grant in &grants[1..] {
        account.prove_by_head(later, *grant, Outcome::Accepted, true);
    }
    assert!(account.opens(Priority::Normal, later).0 > Some(later));
}

/// Of two quotas, that of a minute would leave one request in 1.5 s.
#[test]
fn the_quota_with_the_shortest_interval_is_spaced_after_a_423() {
    let start = Instant::now();
    let minute = Quota::new(count(40), Duration::from_secs(60)).expect("a minute");
    let mut account = Account::new(&Limits::default().also(minute));
    let grant = granted(&mut account, start);
    account.prove_by_head(start, grant, Outcome::RateExceeded, true);
    let later = start + ms(2_000);
    granted(&mut account, later);
    assert!(account.is_open(Priority::Normal, later + ms(25)));
}

/// A cut call shows the time that it had, and a refusal or a token request none.
#[test]
fn usual_times_are_learned_from_answers_to_data_requests() {
    let start = Instant::now();
    let usual = |priority, outcome: Option<Outcome>| {
        let mut account = Account::new(&Limits::default());
        let whole = Duration::from_secs(60);
        let deadline = CallDeadline {
            at: start + whole,
            whole,
            has_body: false,
        };
        account.opens(priority, start);
        let grant = account.admit(priority, Some(&deadline));
        match outcome {
            Some(outcome) => drop(account.prove_by_head(start + ms(80), grant, outcome, true)),
            None => account.learn(deadline.at, grant, u64::MAX, false),
        }
        account.usual(&deadline).as_secs_f64()
    };
    let data = |outcome| usual(Priority::Normal, outcome);
    assert!((60.0..75.0).contains(&data(None)));
    assert!((0.08..0.1).contains(&data(Some(Outcome::Accepted))));
    assert_eq!(data(Some(Outcome::RateExceeded)), 0.002);
    assert_eq!(usual(Priority::High, Some(Outcome::Accepted)), 0.002);
}

#[test]
fn response_with_an_older_time_counts_at_the_newest_time() {
    let start = Instant::now();
    let limits = Limits::new(Quota::per_second(count(2))).rules(Rules::window());
    let mut account = Account::new(&limits);
    let grants = [granted(&mut account, start), granted(&mut account, start)];
    account.prove_by_head(start + ms(100), grants[0], Outcome::Accepted, true);
    // This event read the clock before it took the lock.
    account.prove_by_head(start + ms(99), grants[1], Outcome::Accepted, true);
    let (opens, _) = account.opens(Priority::Normal, start + ms(101));
    assert_eq!(opens, Some(start + ms(100 + 1_002)));
    assert_eq!(account.in_flight, 0);
}

/// Delay until a request is counted, and the delay of its response after that.
type Delays = fn(&mut fastrand::Rng, Duration) -> (Duration, Duration);

/// Runs `n` backlogged requests. Returns when each was counted, and when the last was sent.
fn counted_by_a_server(
    n: u32,
    seed: u64,
    rules: Rules,
    delays: Delays,
) -> (Vec<Duration>, Duration) {
    counted_within(
        &Limits::default().rules(rules).in_flight(count(500)),
        n,
        seed,
        delays,
    )
}

fn counted_within(
    limits: &Limits,
    n: u32,
    seed: u64,
    delays: impl FnMut(&mut fastrand::Rng, Duration) -> (Duration, Duration),
) -> (Vec<Duration>, Duration) {
    counted_of(Account::new(limits), limits, n, seed, delays)
}

/// The same, for an account that may have a share.
fn counted_of(
    mut account: Account,
    limits: &Limits,
    n: u32,
    seed: u64,
    mut delays: impl FnMut(&mut fastrand::Rng, Duration) -> (Duration, Duration),
) -> (Vec<Duration>, Duration) {
    let start = Instant::now();
    let mut rng = fastrand::Rng::with_seed(seed);
    // Responses in flight, each with the number of its grant.
    let mut answers: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    let mut grants = Vec::new();
    let mut counted = Vec::new();
    let mut live = 0;
    let mut now = Duration::ZERO;
    for _ in 0..n {
        loop {
            while let Some(Reverse((answer, granted))) = answers.peek().copied() {
                if answer > now {
                    break;
                }
                answers.pop();
                account.prove_by_head(start + answer, grants[granted], Outcome::Accepted, true);
            }
            let next_answer = answers.peek().map(|Reverse((answer, _))| *answer);
            let (opens, _) = account.opens(Priority::Normal, start + now);
            let opens = opens.map(|at| at - start);
            if opens == Some(now) {
                break;
            }
            let next = opens.into_iter().chain(next_answer).min();
            now = next.expect("someone holds the permits");
        }
        grants.push(granted(&mut account, start + now));
        live = live.max(account.rules[0].live(account.seen));
        let (there, back) = delays(&mut rng, now);
        counted.push(now + there);
        answers.push(Reverse((now + there + back, grants.len() - 1)));
    }
    counted.sort_unstable();
    // The live permits are no fewer than the true count, and no more than the quota.
    let quota = limits.quotas()[0];
    let largest = u64::try_from(largest_interval(&counted, quota.per())).expect("few");
    assert!(
        largest <= live && live <= quota.requests().get().into(),
        "{largest}, {live} live"
    );
    (counted, now)
}

/// The largest number of counts in any half-open interval of a second, from all counts. It is an
/// independent model without permits.
fn largest_second(counted: &[Duration]) -> usize {
    largest_interval(counted, Duration::from_secs(1))
}

fn largest_interval(counted: &[Duration], per: Duration) -> usize {
    (0..counted.len())
        .map(|first| {
            let end = counted[first] + per;
            counted[first..].partition_point(|at| *at < end)
        })
        .max()
        .unwrap_or_default()
}

fn calm(_: &mut fastrand::Rng, _: Duration) -> (Duration, Duration) {
    (Duration::ZERO, Duration::ZERO)
}

fn uniform(rng: &mut fastrand::Rng, _: Duration) -> (Duration, Duration) {
    (ms(rng.u64(0..50)), ms(rng.u64(0..50)))
}

fn heavy_tail(rng: &mut fastrand::Rng, _: Duration) -> (Duration, Duration) {
    let pareto = |rng: &mut fastrand::Rng| {
        Duration::from_secs_f64((0.005 / rng.f64().max(1e-6).powf(0.7)).min(30.0))
    };
    (pareto(rng), pareto(rng))
}

/// Everything sent during a stall of up to 3 s arrives together at its end.
fn stalls(_: &mut fastrand::Rng, now: Duration) -> (Duration, Duration) {
    let phase = Duration::from_nanos(
        u64::try_from(now.as_nanos() % 8_000_000_000).expect("a remainder of 8 s fits"),
    );
    let there = ms(8_000).saturating_sub(phase);
    if there < ms(3_000) {
        (there, ms(10))
    } else {
        (ms(10), ms(10))
    }
}

/// The largest sum of a counter that weighs the second before, over windows that begin at each
/// count, and just before a second after each. It uses no proofs.
fn largest_weighted_second(counted: &[Duration]) -> f64 {
    let second = Duration::from_secs(1);
    let before = |at: Duration| counted.partition_point(|count| *count < at);
    let sum = |phi: Duration, now: usize| {
        let x = (counted[now] - phi).as_secs_f64();
        let current = (now + 1 - before(phi)) as f64;
        let previous = (before(phi) - before(phi.saturating_sub(second))) as f64;
        current + (1.0 - x) * previous
    };
    let mut largest: f64 = 0.0;
    for now in 0..counted.len() {
        let recent = before(counted[now].saturating_sub(2 * second))..=now;
        for phi in recent.flat_map(|i| [counted[i], counted[i] + second - Duration::from_nanos(1)])
        {
            if phi <= counted[now] && counted[now] < phi + second {
                largest = largest.max(sum(phi, now));
            }
        }
    }
    largest
}

/// The largest level of a bucket that leaks fifty a second, without the one that falls in.
fn largest_level(counted: &[Duration]) -> f64 {
    largest_level_at(counted, 50.0)
}

fn largest_level_at(counted: &[Duration], rate: f64) -> f64 {
    let mut level: f64 = 0.0;
    let mut largest: f64 = 0.0;
    let mut last = Duration::ZERO;
    for at in counted {
        level = (level - (*at - last).as_secs_f64() * rate).max(0.0);
        largest = largest.max(level);
        level += 1.0;
        last = *at;
    }
    largest
}

const DELAYS: [(&str, Delays); 4] = [
    ("calm", calm),
    ("uniform", uniform),
    ("heavy tail", heavy_tail),
    ("stalls", stalls),
];

#[test]
fn default_rules_fit_every_alignment_of_a_sliding_counter() {
    for (name, delays) in DELAYS {
        let (counted, _) = counted_by_a_server(4_000, 1, Rules::default(), delays);
        let largest = largest_weighted_second(&counted);
        assert!(largest <= 50.0 + 1e-6, "{name}: {largest}");
        // The window alone is not safe there, or this test could not fail.
        let (counted, _) = counted_by_a_server(4_000, 1, Rules::window(), delays);
        assert!(largest_weighted_second(&counted) > 51.0, "{name}");
    }
}
