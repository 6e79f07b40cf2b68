//! Fairness: the share of each member, and its first grant.

use std::time::Duration;

use super::{World, process::Process};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn shares(world: &World, before: &[u64]) -> Vec<u64> {
    let processes = world.processes.iter().zip(before);
    processes
        .map(|(process, before)| process.seen.sent - before)
        .collect()
}

fn sent(world: &World) -> Vec<u64> {
    world
        .processes
        .iter()
        .map(|process| process.seen.sent)
        .collect()
}

#[test]
fn fifty_that_always_have_work_all_begin_within_two_seconds_and_share_alike() {
    for backlogs in [[2, 2], [1, 40]] {
        let mut world = World::new(1, 50, 0);
        for (who, process) in world.processes.iter_mut().enumerate() {
            process.backlog = backlogs[who % 2];
        }
        world.run_for(seconds(2));
        let first = world.processes.iter().map(|process| process.seen.first);
        let first = first
            .map(|first| first.expect("a lease within two seconds"))
            .max();
        let before = sent(&world);
        world.run_for(seconds(60));
        let shares = shares(&world, &before);
        let (least, most) = (shares.iter().min(), shares.iter().max());
        let (least, most) = (*least.expect("some"), *most.expect("some"));
        println!(
            "backlogs {backlogs:?}: first grants until {first:?}, shares of a minute {least} to {most}"
        );
        assert!(least * 10 >= most * 8, "{shares:?}");
        assert_eq!(world.service.refused, 0);
    }
}

#[test]
fn who_alone_has_work_gets_the_whole_quota() {
    let mut alone = World::new(2, 1, 60);
    let mut among = World::new(2, 50, 0);
    for process in &mut among.processes {
        process.demand(Duration::ZERO, 2);
    }
    among.processes[0].backlog = 60;
    let mut utilisation = Vec::new();
    for world in [&mut alone, &mut among] {
        world.run_for(seconds(10));
        let (since, before) = (world.now, world.service.arrived);
        world.run_for(seconds(60));
        utilisation.push(world.utilisation(since, before));
    }
    println!(
        "alone {:.3}, among 49 without work {:.3}",
        utilisation[0], utilisation[1]
    );
    assert!(
        (utilisation[0] - utilisation[1]).abs() < 0.01,
        "{utilisation:?}"
    );
}

#[test]
fn a_modest_member_waits_for_its_turn_only() {
    let mut world = World::new(3, 2, 0);
    world.processes[0].backlog = 60;
    for _ in 0..300 {
        world.run_for(Duration::from_millis(173));
        let now = world.now;
        world.processes[1].demand(now, 1);
        world.look(1);
    }
    world.run_for(seconds(5));
    let waits = &mut world.processes[1].seen.waits;
    waits.sort();
    let (median, longest) = (waits[150], waits[299]);
    println!(
        "one call in 173 ms beside a greedy member: median wait {median:?}, longest {longest:?}"
    );
    // The greedy one may have taken what a burst allows just before.
    assert!(longest < Duration::from_millis(600), "{waits:?}");
    assert!(median < Duration::from_millis(60), "{waits:?}");
}

#[test]
fn who_comes_and_goes_takes_nothing_with_him() {
    let mut world = World::new(4, 10, 6);
    for round in 0..30 {
        world.run_for(seconds(2));
        let process = Process::like(&world.processes[round]);
        world.processes[round].backlog = 0;
        world.join(process);
    }
    let (since, before) = (world.now, world.service.arrived);
    world.run_for(seconds(30));
    let utilisation = world.utilisation(since, before);
    println!("after 30 of 40 have gone: {utilisation:.3}");
    assert!(utilisation > 0.83, "{utilisation}");
    assert_eq!(world.service.refused, 0);
}
