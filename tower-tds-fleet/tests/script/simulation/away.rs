//! Members that do not reach their store, beside those who do: shares, and two stores at once.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    World,
    network::{HOPS, NETWORKS},
    process::Process,
};
use crate::{
    member::Share,
    store::{DEFAULT, Store},
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Sixteen processes with a lot to do, and the first five with a share of five each: half of the quota.
fn sixteen(seed: u64, network: usize) -> World {
    let mut world = World::new(seed, 0, 0).with_terms(TERMS);
    let (base, path) = (Instant::now(), NETWORKS[network].1.clone());
    (world.up, world.down) = (path.clone(), path);
    let share = 5.try_into().expect("not 0");
    for _ in 0..5 {
        let share = Share::new(share, Duration::from_micros(1_002_000), RECOVERY);
        world.join(Process::sharing(base, 4, share));
    }
    for _ in 5..16 {
        world.join(Process::new(base, 4));
    }
    world.run_for(seconds(40));
    assert!(world.service.arrived > 200, "it is open");
    world
}

// === impl World ===

impl World {
    /// These do not reach the store for so long, each from some time within five seconds.
    fn cut_off(&mut self, whom: std::ops::Range<usize>, time: Duration) {
        for who in whom {
            self.processes[who].cut = self.now + time + seconds(5).mul_f64(self.rng.f64());
        }
    }

    fn alone(&self) -> Vec<u64> {
        self.processes
            .iter()
            .map(|process| process.seen.alone)
            .collect()
    }

    fn nobody_is_refused(&self, what: &str) {
        println!("{what}: {:?} by their shares", self.alone());
        assert_eq!(
            self.service.refused,
            0,
            "{what}: {}",
            self.service.refusals()
        );
    }
}

#[test]
fn members_that_are_cut_off_use_their_shares_beside_the_others_and_nobody_is_refused() {
    for (seed, network) in (40..).zip(0..NETWORKS.len()) {
        let mut world = sixteen(seed, network);
        world.hop = HOPS[network % 3].1;
        world.cut_off(0..4, seconds(120));
        world.run_for(seconds(40));
        let (since, before) = (world.now, world.service.arrived);
        world.run_for(seconds(75));
        let cut = world.utilisation(since, before);
        world.nobody_is_refused(NETWORKS[network].0);
        for (who, alone) in world.alone().into_iter().enumerate() {
            assert_eq!(alone > 60, who < 4, "{who}: {alone}");
        }
        // All are back, and by leases alone.
        world.run_for(seconds(30));
        let (alone, since, before) = (world.alone(), world.now, world.service.arrived);
        world.run_for(seconds(30));
        let back = world.utilisation(since, before);
        world.nobody_is_refused("back");
        assert_eq!(world.alone(), alone);
        println!("utilisation with four of them cut off {cut:.3}, with all {back:.3}");
        assert!(cut > 0.5 && back > 0.6, "{cut} {back}");
    }
}

#[test]
fn a_question_that_comes_when_its_member_is_alone_ends_nobodys_share() {
    for (seed, network) in (50..).zip(0..NETWORKS.len()) {
        let mut world = sixteen(seed, network);
        world.late = true;
        for _ in 0..4 {
            world.cut_off(0..8, seconds(50));
            world.run_for(seconds(100));
        }
        world.nobody_is_refused(NETWORKS[network].0);
        assert!(world.alone()[..5].iter().all(|alone| *alone > 40));
    }
}

#[test]
fn who_all_lose_their_store_go_on_by_their_shares_and_come_back_without_a_burst() {
    for (seed, network) in (60..).zip(0..NETWORKS.len()) {
        let mut world = sixteen(seed, network);
        (world.loses, world.breaks) = (300, 200);
        world.cut_off(0..16, seconds(90));
        world.run_for(seconds(200));
        world.nobody_is_refused(NETWORKS[network].0);
        assert!(world.alone()[..5].iter().all(|alone| *alone > 30));
    }
}

/// A rolling restart of fifty by SIGKILL. What the dead have agreed on is nobody's, for eleven minutes.
#[test]
fn who_are_killed_leave_half_of_the_quota_to_those_who_follow() {
    for (seed, terms, share) in [(90, TERMS, 1), (91, DEFAULT, 5)] {
        let mut world = World::new(seed, 0, 0).with_terms(terms);
        let base = Instant::now();
        let share = share.try_into().expect("not 0");
        let share = Share::new(share, Duration::from_micros(1_002_000), RECOVERY);
        for _ in 0..50 {
            world.join(Process::sharing(base, 2, share));
        }
        world.run_for(seconds(40));
        for who in 0..50 {
            world.processes[who].dead = true;
            world.join(Process::sharing(base, 2, share));
            world.run_for(seconds(1));
        }
        // Their leases are over.
        world.run_for(seconds(25));
        let (since, before) = (world.now, world.service.arrived);
        world.run_for(seconds(40));
        let left = world.utilisation(since, before);
        println!("fifty of a fleet were killed: utilisation {left:.3}");
        assert_eq!(world.service.refused, 0, "{}", world.service.refusals());
        assert!(left > 0.4, "{left}");
    }
}

/// F5: the store has no memory of those who do not reach it.
#[test]
fn a_store_that_forgets_who_is_cut_off_costs_their_shares() {
    let mut most = 0;
    for seed in 70..76 {
        let mut world = sixteen(seed, 0);
        world.cut_off(0..8, seconds(90));
        world.run_for(seconds(10));
        world.restart();
        world.run_for(seconds(85));
        most = most.max(world.service.refused);
        let busiest = busiest(&world.sends);
        // 50 of the others, and what five shares of five come to.
        assert!(busiest <= 50 + 5 * 5, "{busiest}");
    }
    println!("a store that forgets five shares of five: at most {most} refused in 64 s");
    assert!(most > 0, "it costs nothing?");
}

/// F3: some ask the one, some the other.
#[test]
fn two_stores_at_once_cost_a_second_quota_until_all_ask_one() {
    let mut world = sixteen(80, 1);
    let mut other = Store::new(TERMS);
    other.run = "2".to_owned();
    world.stores.push(other);
    let split = world.now;
    for who in 8..16 {
        world.processes[who].store = 1;
    }
    world.run_for(seconds(30));
    // The other one knows nothing, and waits until nothing can be counted that this one has granted.
    world.nobody_is_refused("while it waits");
    world.run_for(seconds(60));
    let refused = world.service.refused;
    let sends: Vec<_> = world
        .sends
        .iter()
        .copied()
        .filter(|at| *at > split)
        .collect();
    let busiest = busiest(&sends);
    println!("two stores at once: {refused} refused in a minute, {busiest} in the busiest second");
    assert!(refused > 0 && busiest <= 100, "{refused}, {busiest}");
    for process in &mut world.processes {
        process.store = 1;
    }
    // All of it over, the refusals heard, and one rung after the other.
    world.run_for(seconds(40));
    let refused = world.service.refused;
    world.run_for(seconds(60));
    assert_eq!(world.service.refused, refused);
}

/// F4: half of them have another name, and so another quota.
#[test]
fn two_names_cost_a_second_quota_until_both_are_slow() {
    let mut world = sixteen(81, 1);
    world.stores.push(Store::new(TERMS));
    for process in &mut world.processes[8..] {
        process.store = 1;
    }
    // The other quota begins as any does.
    world.run_for(seconds(30));
    let minutes: Vec<_> = (0..12)
        .map(|_| {
            let (before, since) = (world.service.refused, world.sends.len());
            world.run_for(seconds(60));
            let busiest = busiest(&world.sends[since..]);
            (world.service.refused - before, busiest)
        })
        .collect();
    println!("two names: refused in each minute, and the busiest second of it: {minutes:?}");
    // Each is a rung lower then, which fits, until both have been clean for ten minutes.
    assert!(minutes[0].0 > 0, "it costs nothing?");
    assert!(
        minutes[2..9].iter().all(|minute| minute.0 == 0),
        "{minutes:?}"
    );
    assert!(minutes.iter().all(|minute| minute.1 <= 100), "{minutes:?}");
}

/// The most in a second.
fn busiest(sends: &[Duration]) -> usize {
    let mut since = 0;
    let ends = sends.iter().enumerate().map(|(last, at)| {
        while sends[since] + seconds(1) <= *at {
            since += 1;
        }
        last + 1 - since
    });
    ends.max().unwrap_or_default()
}

/// The default quota by rules that prove all.
const TERMS: &str = "50 1002000 20000 20040 1 10 10 31002000";

/// After this nothing is live that was granted before.
const RECOVERY: Duration = Duration::from_micros(31_002_000);
