//! Nothing is ever refused, in whatever network: the rate as leases keeps what the limiter of one process
//! keeps.
//!
//! `FLEET_GRANTS=1000000 cargo test --release -p tower-tds-fleet --test script proof -- --nocapture` is the
//! proof run: so many grants in each network, judged by each rule.

use std::{env, time::Duration};

use super::{
    Demand, World,
    network::{HOPS, Hop, NETWORKS, Path},
    service::Service,
};

/// One cell: the utilisation, and what was refused.
fn run(seed: u64, place: &Place<'_>, proven: bool, bursts: bool, grants: u64) -> (f64, String) {
    let members = place.members;
    let backlog = if bursts {
        0
    } else {
        60_usize.div_ceil(members).max(2)
    };
    let mut world = World::new(seed, members, backlog);
    (world.up, world.down, world.hop) = (place.path.clone(), place.path.clone(), place.hop);
    if proven {
        world = world.with_terms(PROVEN);
    } else {
        world.service = Service::lenient();
    }
    if bursts {
        world.demand(Demand {
            per_second: 30.0,
            mean_burst: 25.0,
            among: members,
        });
    }
    world.run_for(Duration::from_secs(4));
    let (since, before) = (world.now, world.service.arrived);
    while world.service.arrived - before < grants {
        world.run_for(Duration::from_secs(1));
    }
    let refused = world.service.refused;
    assert_eq!(refused, 0, "{place:?} {}", world.service.refusals());
    (world.utilisation(since, before), world.service.refusals())
}

#[derive(Debug)]
struct Place<'a> {
    path: &'a Path,
    hop: Hop,
    members: usize,
}

/// In each network, with each hop to the store and each number of members.
fn in_network(network: usize) {
    let all = env::var("FLEET_GRANTS").ok();
    let all = all.map(|grants| grants.parse::<u64>().expect("a number"));
    let (name, path) = &NETWORKS[network];
    for (at, members) in [1, 4, 16, 50].into_iter().enumerate() {
        for (hop_at, (hop_name, hop)) in HOPS.into_iter().enumerate() {
            // One after the other, where it is not to take long.
            if all.is_none() && (at + network) % HOPS.len() != hop_at {
                continue;
            }
            let place = Place { path, hop, members };
            let seed = u64::try_from(network * 100 + at * 10 + hop_at).expect("few") << 32;
            // With the rules that prove all, and with the default.
            let grants = all.map_or(800, |all| all / 48);
            let (proven, _) = run(seed, &place, true, false, grants);
            let (bursty, _) = run(seed + 1, &place, true, true, grants);
            let (greedy, would) = run(seed + 2, &place, false, false, grants);
            let (_, more) = run(seed + 3, &place, false, true, grants);
            println!(
                "{name:>5} {hop_name:>6} {members:>2} members: utilisation {proven:.3} ({bursty:.3} in bursts), \
                 default {greedy:.3}; a bucket would have refused: {would} {more}"
            );
        }
    }
}

#[test]
fn nothing_is_refused_next_door() {
    in_network(0);
}

#[test]
fn nothing_is_refused_without_jitter() {
    in_network(1);
}

#[test]
fn nothing_is_refused_with_a_little_jitter() {
    in_network(2);
}

#[test]
fn nothing_is_refused_with_jitter() {
    in_network(3);
}

#[test]
fn nothing_is_refused_where_delays_have_a_long_tail() {
    in_network(4);
}

#[test]
fn nothing_is_refused_where_all_arrives_together() {
    in_network(5);
}

/// The default with the bucket's burst fixed, which proves it for slow answers, too.
const PROVEN: &str = "50 1002000 20000 20040 1 10 10 0";
