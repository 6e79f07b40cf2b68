//! What sharing costs: rates and waits, beside one process and a counter that all processes increment.

use std::time::Duration;

use tokio::time::sleep;
use tower_tds_limits::Limits;

use super::{
    ms,
    world::{Network, Process, World},
};

#[derive(Debug, Clone, Copy)]
pub(super) enum Fleet {
    /// One process alone.
    None,
    /// Members, of which the second number has calls.
    Of(usize, usize),
    /// Processes that increment a counter in the store.
    Counter(usize),
}

#[derive(Debug)]
pub(super) struct Cost {
    /// Requests a second.
    pub(super) rate: f64,
    /// The longest call.
    longest: Duration,
    /// Members without a call that ended.
    unserved: usize,
    /// Requests that a log of 50 a second would have refused.
    refused: usize,
}

/// Measures processes with so many callers each. Responses take this many milliseconds beyond their way of 100.
pub(super) async fn cost(network: Network, fleet: Fleet, (callers, takes): (usize, u64)) -> Cost {
    let world = World::new(7, Limits::default(), network);
    world.slow(ms(takes));
    let busy = match fleet {
        Fleet::None => {
            world.join_alone(false);
            1
        }
        Fleet::Of(all, busy) => {
            (0..all).for_each(|_| world.join());
            busy
        }
        Fleet::Counter(all) => {
            (0..all).for_each(|_| world.join_alone(true));
            all
        }
    };
    sleep(ms(20_000)).await;
    let busy = &world.members()[..busy];
    busy.iter().for_each(|one| one.call(callers));
    sleep(ms(15_000 + 10 * takes)).await;
    let before = world.counted();
    let count = |one: &Process| {
        one.longest();
        one.counted()
    };
    let served: Vec<_> = busy.iter().map(count).collect();
    sleep(ms(60_000)).await;
    let rate = (world.counted() - before) as f64 / 60.0;
    let unserved = busy
        .iter()
        .zip(served)
        .filter(|(one, before)| one.counted() == *before);
    if !matches!(fleet, Fleet::Counter(_)) {
        world.audit();
    }
    Cost {
        rate,
        unserved: unserved.count(),
        longest: busy.iter().map(|one| one.longest()).max().unwrap(),
        refused: world.over_the_log(),
    }
}

/// Members, callers of each, the least part of one process's rate, and the longest call in milliseconds.
type Row = (usize, usize, f64, u64);

async fn sharing_costs(takes: u64, rows: &[Row]) {
    let one = cost(Network::Quick, Fleet::None, (60, takes)).await;
    println!("{takes} ms: one process: {one:.2?}");
    for &(members, callers, least, longest) in rows {
        let fleet = Fleet::Of(members, members);
        let it = cost(Network::Quick, fleet, (callers, takes)).await;
        let part = it.rate / one.rate;
        println!("{takes} ms, {members} members, {callers} callers: {part:.2}, {it:.2?}");
        let is_kept = part >= least && it.longest <= ms(longest);
        assert!(is_kept, "{members}: {part}, {it:?}");
        assert_eq!((it.unserved, it.refused), (0, 0), "{members}");
    }
}

#[tokio::test(start_paused = true)]
async fn sharing_costs_four_members_little_and_sixteen_half() {
    sharing_costs(0, &[(4, 15, 0.85, 4_000), (16, 4, 0.56, 9_000)]).await;
    let idle = cost(Network::Quick, Fleet::Of(16, 1), (60, 0)).await;
    let far = cost(Network::Far, Fleet::Of(4, 4), (15, 0)).await;
    assert!(idle.rate > 40.0 && far.rate > 36.0, "{idle:?}, {far:?}");
}

/// The table of DESIGN.md.
#[tokio::test(start_paused = true)]
#[ignore = "takes a minute or more"]
async fn sharing_costs_what_the_table_says() {
    let quick = [
        (1, 60, 0.9, 3_000),
        (4, 15, 0.85, 4_000),
        (8, 8, 0.7, 4_000),
        (16, 2, 0.56, 5_200),
        (16, 4, 0.56, 9_000),
        (64, 1, 0.5, 30_000),
    ];
    let slow = [
        (1, 60, 0.9, 6_000),
        (4, 15, 0.85, 6_000),
        (16, 4, 0.3, 20_000),
    ];
    for (takes, rows) in [(0, &quick[..]), (900, &slow)] {
        sharing_costs(takes, rows).await;
        let it = cost(Network::Quick, Fleet::Counter(16), (4, takes)).await;
        println!("{takes} ms, 16 with a counter: {it:.2?}");
    }
}
