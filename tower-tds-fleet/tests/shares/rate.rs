//! Throughput of a fleet, beside one process without a store and the same service.

use std::time::Duration;

use tds_sim::Rule;
use tokio::{task::JoinSet, time::sleep};
use tower_tds::Limits;
use tower_tds_limits::Rules;

use crate::shares::{Member, assert_clean, call, client, or_skip, stage};

const MEASURED: u64 = 12;

/// Measures the requests a second of a fleet in which `busy` members call. With no members, it is one process without a fleet.
async fn rate(
    rule: Rule,
    limits: Limits,
    (members, busy): (usize, usize),
    after: u64,
) -> Option<f64> {
    let (store, server) = stage(rule).await?;
    let join = |_| Member::join(store.client(), &server, limits.clone());
    let members: Vec<_> = (0..members).map(join).collect();
    for member in &members {
        member.fleet.ready().await.unwrap();
    }
    let mut running = JoinSet::new();
    for member in &members[..busy] {
        member.call(if busy == 1 { 60 } else { 60 / busy.min(6) }, &mut running);
    }
    if members.is_empty() {
        let url = format!("{}/v1/live/bus", server.base_url());
        call(&client(&server, limits.clone()), &url, 60, &mut running);
    }
    sleep(Duration::from_secs(after)).await;
    let before = assert_clean(&server);
    sleep(Duration::from_secs(MEASURED)).await;
    let rate = (assert_clean(&server) - before) as f64 / MEASURED as f64;
    println!("{busy} of {} members: {rate:.1} a second", members.len());
    running.shutdown().await;
    assert_clean(&server);
    Some(rate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_fleet_reaches_most_of_the_rate_of_one_process() {
    let usual = (Rule::SlidingCounter, Limits::default());
    let window = (Rule::SlidingLog, Limits::default().rules(Rules::window()));
    for ((rule, limits), rows) in [
        (
            usual,
            &[
                (1, 1, 6, 0.85),
                (4, 4, 6, 0.85),
                (8, 8, 6, 0.65),
                (16, 16, 6, 0.55),
                (16, 1, 3, 0.8),
                (64, 64, 6, 0.0),
            ][..],
        ),
        (window, &[(4, 4, 6, 0.9), (16, 16, 6, 0.9)]),
    ] {
        let one = or_skip!(rate(rule, limits.clone(), (0, 0), 3).await);
        for &(members, busy, after, bar) in rows {
            let part = or_skip!(rate(rule, limits.clone(), (members, busy), after).await) / one;
            println!("{rule:?}, {busy} of {members}: {part:.2}");
            assert!(part >= bar, "{members}: {part}");
        }
    }
}
