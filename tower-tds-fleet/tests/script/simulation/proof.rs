//! Nothing is ever refused, in whatever network: the rate as leases keeps what the limiter of one process
//! keeps.
//!
//! `FLEET_GRANTS=1000000 cargo test --release -p tower-tds-fleet --test script proof -- --nocapture` is the
//! proof run: so many grants in each network, judged by each rule.

use std::{env, time::Duration};

use super::{
    Demand, World,
    network::{HOPS, Hop, NETWORKS, Path},
};

/// One cell: the utilisation, and what was refused.
fn run(seed: u64, path: &Path, hop: Hop, members: usize, grants: u64, bursts: bool) -> (f64, String) {
    let backlog = if bursts { 0 } else { 60_usize.div_ceil(members).max(2) };
    let mut world = World::new(seed, members, backlog);
    (world.up, world.down, world.hop) = (path.clone(), path.clone(), hop);
    if bursts {
        let among = members;
        world.demand(Demand { per_second: 30.0, mean_burst: 25.0, among });
    }
    world.run_for(Duration::from_secs(4));
    let (since, before) = (world.now, world.service.arrived);
    while world.service.arrived - before < grants {
        world.run_for(Duration::from_secs(1));
    }
    (world.utilisation(since, before), world.service.refusals())
}

/// In each network, with each hop to the store and each number of members.
fn in_networks(networks: &[usize]) {
    let all = env::var("FLEET_GRANTS").ok().map(|grants| grants.parse::<u64>().expect("a number"));
    let mut refused = Vec::new();
    for network in networks {
        let (name, path) = &NETWORKS[*network];
        for (at, members) in [1, 4, 16, 50].into_iter().enumerate() {
            for (hop_at, (hop_name, hop)) in HOPS.into_iter().enumerate() {
                // One after the other, where it is not to take long.
                if all.is_none() && (at + network) % HOPS.len() != hop_at {
                    continue;
                }
                let grants = all.map_or(2_000, |all| all / 24);
                let seed = fastrand::Rng::with_seed(u64::try_from(network * 100 + at * 10 + hop_at).expect("few")).u64(..);
                let (greedy, refusals) = run(seed, path, hop, members, grants, false);
                let (bursty, more) = run(seed, path, hop, members, grants / 2, true);
                let line = format!(
                    "{name:>5} {hop_name:>6} {members:>2} members: utilisation {greedy:.3}, {bursty:.3} in bursts; \
                     {refusals}{more}"
                );
                println!("{line}");
                if !(refusals.is_empty() && more.is_empty()) {
                    refused.push(line);
                }
            }
        }
    }
    assert!(refused.is_empty(), "refused:\n{}", refused.join("\n"));
}

#[test]
fn nothing_is_refused_next_door() {
    in_networks(&[0]);
}

#[test]
fn nothing_is_refused_without_jitter() {
    in_networks(&[1]);
}

#[test]
fn nothing_is_refused_with_a_little_jitter() {
    in_networks(&[2]);
}

#[test]
fn nothing_is_refused_with_jitter() {
    in_networks(&[3]);
}

#[test]
fn nothing_is_refused_where_delays_have_a_long_tail() {
    in_networks(&[4]);
}

#[test]
fn nothing_is_refused_where_all_arrives_together() {
    in_networks(&[5]);
}
