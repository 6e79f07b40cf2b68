use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderMap, Method, Request};
use proptest::prelude::*;

use super::{Arrival, Filter, Ledger, Outcome};
use crate::clock::{Clock, lock};

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

fn ledger(kept: usize) -> Ledger {
    Ledger::new(Arc::new(Clock::start()), kept, false)
}

fn arrival(at: Duration, target: &str) -> Arrival {
    Arrival {
        at,
        peer: PEER,
        connection: None,
        method: Method::GET,
        target: target.into(),
        headers: BTreeMap::new(),
        body_bytes: None,
        token: None,
        status: None,
        outcome: Outcome::InProgress,
        answered: None,
        ended: None,
    }
}

fn arrive(ledger: &Ledger, target: &str, headers: &HeaderMap) -> super::Number {
    let mut request = Request::get(target).body(()).unwrap();
    request.headers_mut().clone_from(headers);
    ledger.arrive(PEER, None, &request.into_parts().0).0
}

/// The most arrivals in any `[start, start + 1 s)`; a fullest one starts with an arrival.
fn largest_second(arrivals: &[Duration]) -> u64 {
    let second = Duration::from_secs(1);
    let within = |start: &Duration| {
        let within = |at: &&Duration| *at >= start && **at - *start < second;
        arrivals.iter().filter(within).count() as u64
    };
    arrivals.iter().map(within).max().unwrap_or(0)
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
            lock(&ledger.book).arrive(arrival(at, "/"));
        }
        prop_assert_eq!(ledger.summary().largest_second, largest_second(&all));
    }
}

#[test]
fn arrivals_a_second_apart_are_in_different_seconds() {
    let ledger = ledger(10);
    for millis in [0, 999, 1_000, 1_998] {
        lock(&ledger.book).arrive(arrival(Duration::from_millis(millis), "/"));
    }
    assert_eq!(ledger.summary().largest_second, 3);
}

#[test]
fn forgotten_arrivals_stay_in_the_summary() {
    for kept in [0, 2, 3] {
        let ledger = ledger(kept);
        let all = ["/0", "/1", "/2"];
        let numbers = all.map(|target| arrive(&ledger, target, &HeaderMap::new()));
        for number in numbers {
            ledger.answer(number, 200);
            ledger.end(number, Outcome::Complete);
        }
        let summary = ledger.summary();
        let counts = (summary.data_calls, summary.complete, summary.in_progress);
        assert_eq!((counts, summary.by_status[&200]), ((3, 3, 0), 3));
        assert_eq!(summary.arrivals_forgotten, 3 - kept as u64);
        let arrivals = ledger.arrivals();
        let targets: Vec<_> = arrivals.iter().map(|it| &*it.target).collect();
        assert_eq!(targets, all[3 - kept..]);
        assert!(arrivals.iter().all(|it| it.outcome == Outcome::Complete));
    }
}

#[test]
fn the_ledger_in_json_has_times_in_seconds() {
    let ledger = ledger(2);
    lock(&ledger.book).arrive(arrival(Duration::from_millis(1_500), "/v1/live/a?b"));
    let (summary, arrivals) = ledger.find(&Filter::default(), 9);
    assert_eq!(summary.data_calls, 1);
    let arrival = serde_json::to_value(&arrivals[0]).unwrap();
    assert_eq!(arrival["at"], 1.5);
    assert_eq!(arrival["target"], "/v1/live/a?b");
    assert_eq!(arrival["outcome"], "in_progress");
    assert!(arrival["ended"].is_null());
}

#[test]
fn secrets_of_headers_are_masked_and_conditions_are_whole() {
    let ledger = Ledger::new(Arc::new(Clock::start()), 9, true);
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("authorization", "Bearer abc.def"),
        ("proxy-authorization", "Basic dTpw"),
        ("x-api-key", "two words"),
        ("cookie", "session=1"),
        ("x-auth-token", "abc"),
        ("if-none-match", "\"a\""),
        ("if-none-match", "W/\"b\""),
        ("range", "bytes=1-2"),
    ] {
        headers.append(name, value.parse().unwrap());
    }
    headers.insert("authorization2", "abcdef".parse().unwrap());
    arrive(&ledger, "/", &headers);
    let shown = &ledger.arrivals()[0].headers;
    let shown = shown.iter().map(|(name, value)| (&**name, &**value));
    let shown: Vec<_> = shown.collect();
    assert_eq!(
        shown,
        [
            ("authorization", "Bearer ***"),
            ("authorization2", "***"),
            ("cookie", "***"),
            ("if-none-match", "\"a\", W/\"b\""),
            ("proxy-authorization", "Basic ***"),
            ("range", "bytes=1-2"),
            ("x-api-key", "***"),
            ("x-auth-token", "***"),
        ]
    );
}

#[test]
fn a_call_in_progress_while_the_ledger_is_cleared_is_in_no_sum() {
    let ledger = ledger(2);
    for target in ["/a", "/b", "/c"] {
        arrive(&ledger, target, &HeaderMap::new());
    }
    let old = arrive(&ledger, "/old", &HeaderMap::new());
    ledger.socket_opened();
    ledger.clear();
    let new = arrive(&ledger, "/new", &HeaderMap::new());
    ledger.answer(old, 200);
    ledger.end(old, Outcome::Complete);
    ledger.answer(new, 423);
    ledger.end(new, Outcome::Complete);
    let summary = ledger.summary();
    assert_eq!(summary.by_status, [(423, 1)].into());
    assert_eq!(
        (summary.data_calls, summary.complete, summary.in_progress),
        (1, 1, 0)
    );
    let opened = (summary.peak_sockets, summary.sockets_opened);
    assert_eq!((summary.sockets_open, opened), (1, (1, 0)));
    assert_eq!(&*ledger.arrivals()[0].target, "/new");
    assert_eq!(ledger.arrivals()[0].status, Some(423));
}
