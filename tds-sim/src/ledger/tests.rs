use std::{net::SocketAddr, sync::Arc, time::Duration};

use proptest::prelude::*;

use super::{Ledger, Outcome};
use crate::shared::{Clock, lock};

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

fn ledger(kept: usize) -> Ledger {
    Ledger::new(Arc::new(Clock::start()), kept)
}

/// The most arrivals in any `[start, start + 1 s)`; a fullest one starts with an arrival.
fn largest_second(arrivals: &[Duration]) -> u64 {
    let second = Duration::from_secs(1);
    let within = |start: Duration| {
        arrivals
            .iter()
            .filter(move |at| **at >= start && **at - start < second)
    };
    arrivals
        .iter()
        .map(|start| within(*start).count())
        .max()
        .unwrap_or(0)
        .try_into()
        .unwrap()
}

proptest! {
    #[test]
    fn largest_second_matches_the_full_log(
        steps in prop::collection::vec(prop_oneof![0..3_u64, 0..400_u64, Just(500_u64), Just(1000_u64)], 0..200),
    ) {
        let ledger = ledger(1_000);
        let (mut at, mut all) = (Duration::ZERO, Vec::new());
        for step in steps {
            at += Duration::from_millis(step);
            all.push(at);
            lock(&ledger.book).arrive(at, PEER, "/");
        }
        prop_assert_eq!(ledger.summary().largest_second, largest_second(&all));
    }
}

#[test]
fn arrivals_a_second_apart_are_in_different_seconds() {
    let ledger = ledger(10);
    for millis in [0, 999, 1_000, 1_998] {
        lock(&ledger.book).arrive(Duration::from_millis(millis), PEER, "/");
    }
    assert_eq!(ledger.summary().largest_second, 3);
}

#[test]
fn forgotten_arrivals_stay_in_the_summary() {
    let ledger = ledger(2);
    let numbers: Vec<_> = (0..3)
        .map(|n| ledger.arrive(PEER, &format!("/{n}")).0)
        .collect();
    for number in &numbers {
        ledger.answer(*number, 200);
        ledger.end(*number, Outcome::Complete);
    }
    let summary = ledger.summary();
    assert_eq!(
        (summary.data_calls, summary.complete, summary.in_progress),
        (3, 3, 0)
    );
    assert_eq!(
        (summary.arrivals_forgotten, summary.by_status[&200]),
        (1, 3)
    );
    let targets: Vec<_> = ledger
        .arrivals()
        .iter()
        .map(|kept| kept.target.to_string())
        .collect();
    assert_eq!(targets, ["/1", "/2"]);
    assert!(
        ledger
            .arrivals()
            .iter()
            .all(|kept| kept.outcome == Outcome::Complete)
    );
}

#[test]
fn the_ledger_in_json_has_times_in_seconds() {
    let ledger = ledger(2);
    lock(&ledger.book).arrive(Duration::from_millis(1_500), PEER, "/v1/live/a?b");
    let json = ledger.full();
    assert_eq!(json["summary"]["data_calls"], 1);
    let arrival = &json["arrivals"][0];
    assert_eq!(arrival["at"], 1.5);
    assert_eq!(arrival["target"], "/v1/live/a?b");
    assert_eq!(arrival["outcome"], "in_progress");
    assert!(arrival["ended"].is_null());
}
