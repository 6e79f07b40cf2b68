//! Throughput of a fleet, beside one process without a store and the same service.

use std::time::Duration;

use redis::cmd;
use tds_sim::Rule;
use tokio::{task::JoinSet, time::sleep};
use tower_tds::Limits;
use tower_tds_limits::Rules;

use crate::shares::{Member, RedisServer, assert_clean, call, client, remember, slow_service};

const MEASURED: u64 = 12;

const QUICK: Duration = Duration::from_millis(100);

/// Measures the requests a second of one process alone.
async fn alone(rule: Rule, limits: Limits, takes: Duration) -> f64 {
    let server = slow_service(rule, takes).await;
    let client = client(&server, limits);
    let mut running = JoinSet::new();
    let url = format!("{}/v1/live/bus", server.base_url());
    call(&client, &url, 60, &mut running);
    sleep(Duration::from_secs(3) + 4 * takes).await;
    let before = assert_clean(&server);
    sleep(Duration::from_secs(MEASURED)).await;
    (assert_clean(&server) - before) as f64 / MEASURED as f64
}

/// Measures the requests a second of a fleet in which `busy` members call.
async fn together(
    rule: Rule,
    limits: Limits,
    (members, busy): (usize, usize),
    (after, takes): (Duration, Duration),
) -> f64 {
    let store = &RedisServer::start().unwrap();
    remember(store);
    let server = slow_service(rule, takes).await;
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
    let (_, work) = work(store);
    sleep(Duration::from_secs(MEASURED)).await;
    let rate = (assert_clean(&server) - before) as f64 / MEASURED as f64;
    let (calls, spent) = self::work(store);
    let memory: String = cmd("INFO")
        .arg("memory")
        .query(&mut store.connection())
        .unwrap();
    let memory = memory
        .lines()
        .find_map(|line| line.strip_prefix("used_memory_human:").map(str::to_owned));
    let usage: Option<u64> = cmd("MEMORY")
        .arg(&["USAGE", "{test}:shares"])
        .query(&mut store.connection())
        .unwrap();
    println!(
        "{busy} of {} members: {rate:.1} a second; store: {calls} questions so far, {:.1} % of a core, hash {usage:?} bytes, {memory:?}",
        members.len(),
        (spent - work) / 1e4 / MEASURED as f64,
    );
    running.shutdown().await;
    assert_clean(&server);
    rate
}

/// How often the script was run, and for how many microseconds.
fn work(store: &RedisServer) -> (u64, f64) {
    let stats: String = cmd("INFO")
        .arg("commandstats")
        .query(&mut store.connection())
        .unwrap();
    let Some(line) = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
    else {
        return (0, 0.0);
    };
    let (calls, rest) = line.split_once(",usec=").unwrap();
    (
        calls.parse().unwrap(),
        rest.split(',').next().unwrap().parse().unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_fleet_reaches_most_of_the_rate_of_one_process() {
    if RedisServer::start().is_none() {
        return;
    }
    let window = || Limits::default().rules(Rules::window());
    let (counter, log) = (Rule::SlidingCounter, Rule::SlidingLog);
    let one = alone(counter, Limits::default(), QUICK).await;
    let one_window = alone(log, window(), QUICK).await;
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
        let rate = together(counter, Limits::default(), (members, busy), (after, QUICK)).await;
        println!("by default, {busy} of {members}: {:.2}", rate / one);
        assert!(rate >= bar * one, "{members}: {rate} of {one}");
    }
    for members in [4, 16] {
        let rate = together(log, window(), (members, members), (usual, QUICK)).await;
        println!("by the window, {members}: {:.2}", rate / one_window);
        assert!(
            rate >= 0.9 * one_window,
            "{members}: {rate} of {one_window}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn slow_answers_cost_a_fleet_little_of_the_rate_of_one_process() {
    if RedisServer::start().is_none() {
        return;
    }
    for seconds in [1, 2] {
        let takes = Duration::from_secs(seconds);
        let one = alone(Rule::SlidingCounter, Limits::default(), takes).await;
        for members in [1, 4] {
            let (rule, limits) = (Rule::SlidingCounter, Limits::default());
            let after = (Duration::from_secs(8) + 6 * takes, takes);
            let rate = together(rule, limits, (members, members), after).await;
            println!(
                "answers of {takes:?}, {members}: {:.2} of {one:.1}",
                rate / one
            );
            assert!(rate >= 0.85 * one, "{members}: {rate} of {one}");
        }
    }
}
