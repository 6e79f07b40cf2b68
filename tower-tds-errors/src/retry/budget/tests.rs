#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]

use std::num::NonZeroU32;
use std::time::Duration;

use http::Uri;
use proptest::prelude::*;
use tokio::time::Instant;

use super::{Budget, Costs, Spending};
use crate::clock;

mod model;

fn uri(host: &str) -> Uri {
    format!("https://{host}/v2").parse().unwrap()
}

fn budget(retries: u32, requests: u32, burst: u32) -> Budget {
    let n = |n| NonZeroU32::new(n).unwrap();
    Budget::new(retries, n(requests))
        .burst(n(burst))
        .per_second(0)
}

/// How many of so many requests, which all fail once, are retried.
fn granted(budget: &Budget, requests: u32) -> u32 {
    let (uri, now) = (uri("a"), clock::now());
    let spent = (0..requests).filter(|_| {
        budget.deposit(&uri);
        let withdrawn = budget.withdraw_at(uri.authority().unwrap().as_str(), now);
        withdrawn.map(|mut price| price.is_spent = true).is_some()
    });
    u32::try_from(spent.count()).unwrap()
}

#[test]
fn a_ratio_is_kept_to_the_last_retry() {
    // Beyond the burst. What the first request earns is lost: nothing was owed yet.
    for (retries, of, expected) in [(60, 100, 600), (1, 3, 333), (9, 10, 900), (3, 10, 300)] {
        let extra = granted(&budget(retries, of, 1), 1000) - 1;
        assert!(extra.abs_diff(expected) <= 1, "{retries}/{of}: {extra}");
    }
}

#[test]
fn what_was_lent_for_a_retry_that_failed_does_not_come_back_with_a_later_one() {
    for (later, left) in [(None, true), (Some(Costs::Nothing), false)] {
        let budget = budget(1, 10, 1);
        let mut spending = Spending::default();
        let mut pay = |costs, now| spending.pay(Some(&budget), "a", costs, now);
        assert!(pay(Costs::Lent, clock::now()).is_ok());
        spending.sent();
        if let Some(costs) = later {
            let paid = spending.pay(Some(&budget), "a", costs, clock::now());
            assert!(paid.is_ok());
            spending.sent();
        }
        spending.succeeded();
        let another = budget.withdraw_at("a", clock::now());
        assert_eq!(another.is_some(), left);
    }
}

#[test]
fn time_alone_earns_and_no_more_than_the_burst() {
    let budget = budget(0, 1, 3).per_second(2);
    let (uri, start) = (uri("a"), clock::now());
    let mut take = |after: u64| {
        let now = start + Duration::from_millis(after);
        let mut taken = 0;
        while let Some(mut price) = budget.withdraw_at(uri.authority().unwrap().as_str(), now) {
            price.is_spent = true;
            taken += 1;
        }
        taken
    };
    assert_eq!(
        [0, 499, 500, 999, 1500, 60_000].map(&mut take),
        [3, 0, 1, 0, 2, 3]
    );
}

#[test]
fn each_host_has_its_own_and_is_the_same_in_any_case() {
    let budget = budget(0, 1, 1);
    let take = |host: &str| {
        let withdrawn = budget.withdraw_at(host, clock::now());
        withdrawn.map(|mut price| price.is_spent = true).is_some()
    };
    assert!(take("a.example"));
    assert!(!take("A.example") && !take("user@a.example"));
    assert!(take("a.example:8443") && take("b.example"));
}

#[test]
fn what_is_dropped_unspent_comes_back() {
    let budget = budget(0, 1, 1);
    let now = clock::now();
    let withdrawn = budget.withdraw_at("a", now);
    assert!(withdrawn.is_some() && budget.withdraw_at("a", now).is_none());
    drop(withdrawn);
    assert!(!budget.ledger.has_debts());
    let mut spent = budget.withdraw_at("a", now).unwrap();
    spent.is_spent = true;
    assert!(budget.withdraw_at("a", now).is_none());
    spent.is_spent = false;
    drop(spent);
    assert!(budget.withdraw_at("a", now).is_some());
}

#[test]
fn a_host_that_time_has_freed_is_forgotten() {
    // And so is one that time frees of nothing, when it has been left alone for long.
    for (per_second, after) in [(1, Duration::from_secs(2)), (0, Duration::from_secs(3_600))] {
        let budget = budget(0, 1, 10).per_second(per_second);
        let start = clock::now();
        for host in 0..100 {
            let withdrawn = budget.withdraw_at(&format!("h{host}"), start);
            withdrawn.unwrap().is_spent = true;
        }
        assert!(budget.ledger.has_debts());
        let later = start + after;
        let other = uri("other");
        let deposits = (0..100).take_while(|_| {
            budget.deposit_at(&other, later);
            budget.ledger.has_debts()
        });
        assert!(deposits.count() < 100);
    }
}

#[test]
fn what_requests_earn_and_what_time_earns_come_off_in_any_order() {
    // Half a retry for each request, one for each second, and a debt of three.
    for deposits_at in [0, 500, 1000] {
        let budget = budget(1, 2, 3).per_second(1);
        let (uri, start) = (uri("a"), clock::now());
        let mut take = |after: u64| {
            let now = start + Duration::from_millis(after);
            let withdrawn = budget.withdraw_at(uri.authority().unwrap().as_str(), now);
            withdrawn.map(|mut price| price.is_spent = true).is_some()
        };
        assert!([0, 0, 0].map(&mut take).iter().all(|taken| *taken));
        for _ in 0..2 {
            budget.deposit_at(&uri, start + Duration::from_millis(deposits_at));
        }
        assert_eq!([1000, 1000, 1000].map(&mut take), [true, true, false]);
    }
}

/// A request that came, or a failure that asks.
#[derive(Clone, Copy, Debug)]
enum Event {
    Request,
    Failure,
    Canceled,
    Pause(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => Just(Event::Request),
        4 => Just(Event::Failure),
        1 => Just(Event::Canceled),
        1 => (0u64..3_000).prop_map(Event::Pause),
    ];
    prop::collection::vec(event, 0..400)
}

proptest! {
    #[test]
    fn no_interval_has_more_than_the_burst_the_share_and_the_seconds(
        events in events(), retries in 0u32..200, of in 1u32..200, burst in 1u32..20, rate in 0u32..5,
    ) {
        let budget = budget(retries, of, burst).per_second(rate);
        let uri = uri("a");
        let mut now: Instant = clock::now();
        // Requests and seconds since each retry, the first of an interval that ends with the last.
        let mut starts: Vec<(Instant, u64, u64)> = Vec::new();
        let mut requests = 0u64;
        for event in events {
            match event {
                Event::Request => {
                    requests += 1;
                    budget.deposit_at(&uri, now);
                }
                Event::Pause(ms) => now += Duration::from_millis(ms),
                Event::Canceled => drop(budget.withdraw_at(uri.authority().unwrap().as_str(), now)),
                Event::Failure => {
                    let Some(mut price) = budget.withdraw_at(uri.authority().unwrap().as_str(), now) else { continue };
                    price.is_spent = true;
                    starts.push((now, requests, 0));
                    for (at, before, taken) in &mut starts {
                        *taken += 1;
                        let share = (requests - *before) * u64::from(retries);
                        let earned = (now - *at).as_millis() * u128::from(rate * of);
                        let bound = u64::from(burst * of + retries % of) + share;
                        let bound = u128::from(bound) * 1000 + earned;
                        prop_assert!(u128::from(*taken * u64::from(of)) * 1000 <= bound);
                    }
                }
            }
        }
    }
}
