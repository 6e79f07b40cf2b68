//! Throughput of a fleet, beside one process without a store and the same service.

use std::time::Duration;

use tds_sim::Rule;
use tokio::{task::JoinSet, time::sleep};
use tower_tds::Limits;
use tower_tds_limits::Rules;

use crate::shares::{Member, RedisServer, assert_clean, call, client, remember, service};

const MEASURED: u64 = 12;

/// Measures the requests a second of one process alone.
async fn alone(rule: Rule, limits: Limits) -> f64 {
    let server = service(rule).await;
    let client = client(&server, limits);
    let mut running = JoinSet::new();
    let url = format!("{}/v1/live/bus", server.base_url());
    call(&client, &url, 60, &mut running);
    sleep(Duration::from_secs(3)).await;
    let before = assert_clean(&server);
    sleep(Duration::from_secs(MEASURED)).await;
    (assert_clean(&server) - before) as f64 / MEASURED as f64
}

/// Measures the requests a second of a fleet in which `busy` members call.
async fn together(
    rule: Rule,
    limits: Limits,
    (members, busy): (usize, usize),
    after: Duration,
) -> f64 {
    let store = &RedisServer::start().unwrap();
    remember(store);
    let server = service(rule).await;
    let members: Vec<_> = (0..members)
        .map(|_| Member::join(store.client(), &server, limits.clone()))
        .collect();
    for member in &members {
        member.fleet.ready().await.unwrap();
    }
    let mut running = JoinSet::new();
    for member in &members[..busy] {
        member.call(if busy == 1 { 60 } else { 60 / busy.min(6) }, &mut running);
    }
    sleep(after).await;
    let before = assert_clean(&server);
    sleep(Duration::from_secs(MEASURED)).await;
    let rate = (assert_clean(&server) - before) as f64 / MEASURED as f64;
    println!("{busy} of {} members: {rate:.1} a second", members.len());
    running.shutdown().await;
    assert_clean(&server);
    rate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_fleet_reaches_most_of_the_rate_of_one_process() {
    if RedisServer::start().is_none() {
        return;
    }
    let window = || Limits::default().rules(Rules::window());
    let (counter, log) = (Rule::SlidingCounter, Rule::SlidingLog);
    let one = alone(counter, Limits::default()).await;
    let one_window = alone(log, window()).await;
    println!("one process: {one:.1} a second by default, {one_window:.1} by the window");
    let usual = Duration::from_secs(6);
    for (members, busy, after, bar) in [
        (1, 1, usual, 0.85),
        (4, 4, usual, 0.85),
        (8, 8, usual, 0.65),
        (16, 16, usual, 0.55),
        (16, 1, Duration::from_secs(3), 0.8),
        (64, 64, usual, 0.0),
    ] {
        let rate = together(counter, Limits::default(), (members, busy), after).await;
        println!("by default, {busy} of {members}: {:.2}", rate / one);
        assert!(rate >= bar * one, "{members}: {rate} of {one}");
    }
    for members in [4, 16] {
        let rate = together(log, window(), (members, members), usual).await;
        println!("by the window, {members}: {:.2}", rate / one_window);
        assert!(
            rate >= 0.9 * one_window,
            "{members}: {rate} of {one_window}"
        );
    }
}
