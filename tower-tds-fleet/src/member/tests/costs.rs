//! The price of sharing: rates and waits, beside one process and a counter that all processes increment.

use std::time::Duration;

use tds_sim::Rule;
use tokio::time::sleep;
use tower_tds_limits::Rules;

use super::{
    ms, or_skip,
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
pub(super) async fn cost(
    network: Network,
    fleet: Fleet,
    (callers, takes): (usize, u64),
    rules: Rules,
) -> Option<Cost> {
    let (members, alone, busy) = match fleet {
        Fleet::None => (0, 1, 1),
        Fleet::Of(all, busy) => (all, 0, busy),
        Fleet::Counter(all) => (0, all, all),
    };
    let is_naive = matches!(fleet, Fleet::Counter(_));
    let world = World::start(members, 7, (network, ms(takes)), rules).await?;
    (0..alone).for_each(|_| world.join_alone(is_naive));
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
    if !is_naive {
        world.audit();
    }
    Some(Cost {
        rate,
        unserved: unserved.count(),
        longest: busy.iter().map(|one| one.longest()).max().unwrap(),
        refused: world.refused(Rule::SlidingLog, 0),
    })
}

/// Members, callers of each, the least part of one process's rate, and the longest call in milliseconds.
type Row = (usize, usize, f64, u64);

async fn sharing_costs(rules: Rules, takes: u64, rows: &[Row]) -> Option<()> {
    let one = cost(Network::Quick, Fleet::None, (60, takes), rules).await?;
    println!("{rules:?}, {takes} ms: one process: {one:.2?}");
    for &(members, callers, least, longest) in rows {
        let fleet = Fleet::Of(members, members);
        let it = cost(Network::Quick, fleet, (callers, takes), rules).await?;
        let part = it.rate / one.rate;
        println!("{takes} ms, {members} members, {callers} callers: {part:.2}, {it:.2?}");
        let is_kept = part >= least && it.longest <= ms(longest);
        assert!(is_kept, "{members}: {part}, {it:?}");
        assert_eq!((it.unserved, it.refused), (0, 0), "{members}");
    }
    Some(())
}

#[tokio::test(start_paused = true)]
async fn sharing_costs_four_members_little_and_sixteen_half() {
    let rows = [(4, 15, 0.85, 4_000), (16, 4, 0.56, 9_000)];
    or_skip!(sharing_costs(Rules::default(), 0, &rows).await);
    // Answers that come together would leave .77.
    let slow = [(4, 15, 0.85, 6_000)];
    or_skip!(sharing_costs(Rules::default(), 900, &slow).await);
    let by_window = [(16, 4, 0.95, 3_000)];
    or_skip!(sharing_costs(Rules::window(), 0, &by_window).await);
    let usual = Rules::default();
    let idle = cost(Network::Quick, Fleet::Of(16, 1), (60, 0), usual).await;
    let far = cost(Network::Far, Fleet::Of(4, 4), (15, 0), usual).await;
    let (idle, far) = (idle.unwrap(), far.unwrap());
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
        // Delays and the members' order are random. With this seed it is 5.3 s; with fifty others 4.6 to 6.8 s, the median
        // 5.1 s, as before a change of the limits that had moved the seed's from 5.1 s.
        (16, 2, 0.56, 5_400),
        (16, 4, 0.56, 9_000),
        (64, 1, 0.5, 30_000),
    ];
    let slow = [
        (1, 60, 0.9, 6_000),
        (4, 15, 0.85, 6_000),
        (16, 4, 0.3, 20_000),
    ];
    for (takes, rows) in [(0, &quick[..]), (900, &slow)] {
        let _skipped = sharing_costs(Rules::default(), takes, rows).await;
        let it = cost(
            Network::Quick,
            Fleet::Counter(16),
            (4, takes),
            Rules::default(),
        )
        .await;
        println!("{takes} ms, 16 with a counter: {it:.2?}");
    }
}
