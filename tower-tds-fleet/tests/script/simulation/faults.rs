//! Simulated faults, and their cost: never a refusal, but for the assumptions that have a name.

use std::time::Duration;

use tds_sim::Rule;

use super::{
    World,
    network::{HOPS, Hop, NETWORKS, Path},
    process::Process,
    service::Service,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn network(name: &str) -> Path {
    let mut networks = NETWORKS.into_iter();
    networks
        .find(|network| network.0 == name)
        .expect("one of them")
        .1
}

/// Sixteen processes with a lot to do, in a network with jitter, under rules that prove everything.
fn sixteen(seed: u64) -> World {
    let mut world = World::new(seed, 16, 4).with_terms("50 1002000 20000 20040 1 10 10 31002000");
    (world.up, world.down) = (network("logn"), network("logn"));
    world.run_for(seconds(40));
    assert!(world.service.arrived > 200, "it is open");
    world
}

/// What it earned since then, with nothing refused.
fn earns(what: &str, world: &mut World, time: Duration) -> f64 {
    let (since, before) = (world.now, world.service.arrived);
    world.run_for(time);
    let utilisation = world.utilisation(since, before);
    println!(
        "{what}: utilisation {utilisation:.3}, refused {}",
        world.service.refused
    );
    assert_eq!(world.service.refused, 0, "{}", world.service.refusals());
    utilisation
}

#[test]
fn members_that_die_take_their_leases_with_them() {
    let mut world = sixteen(1);
    let calm = earns("nobody dies", &mut world, seconds(30));
    let (since, before) = (world.now, world.service.arrived);
    for round in 0..40 {
        world.run_for(seconds(2) + Duration::from_millis(37 * round));
        let who = world.rng.usize(..world.processes.len());
        world.processes[who].dead = true;
        let process = Process::like(&world.processes[who]);
        world.join(process);
    }
    let dying = world.utilisation(since, before);
    println!(
        "one of 16 dies in about 2.7 s, with all it holds: utilisation {dying:.3} of {calm:.3}"
    );
    assert_eq!(world.service.refused, 0, "{}", world.service.refusals());
    // What it held is over after the lease's time.
    world.run_for(seconds(22));
    let after = earns("afterwards", &mut world, seconds(30));
    assert!(after > calm - 0.02, "{after} of {calm}");
}

#[test]
fn answers_of_the_store_that_are_lost_cost_time_and_nothing_else() {
    for (breaks, hop) in [(200, HOPS[1].1), (20, HOPS[1].1), (50, HOPS[2].1)] {
        let mut world = sixteen(2);
        (world.breaks, world.hop) = (breaks, hop);
        earns(
            &format!("one connection in {breaks} questions breaks"),
            &mut world,
            seconds(60),
        );
        world.breaks = 0;
        world.run_for(seconds(25));
        let after = earns("afterwards", &mut world, seconds(20));
        assert!(after > 0.74, "{after}");
    }
}

#[test]
fn calls_that_are_lost_hold_their_leases_for_as_long_as_they_can_be_counted() {
    let mut world = sixteen(3);
    world.loses = 300;
    let utilisation = earns("one call in 300 is never answered", &mut world, seconds(60));
    assert!(utilisation > 0.2, "{utilisation}");
}

#[test]
fn all_faults_at_once_refuse_nothing() {
    for (seed, name) in [(4, "spike"), (5, "u50"), (6, "near")] {
        let mut world = sixteen(seed);
        (world.up, world.down) = (network(name), network(name));
        (world.hop, world.breaks, world.loses) = (HOPS[2].1, 100, 300);
        for _ in 0..30 {
            world.run_for(seconds(2));
            let who = world.rng.usize(..world.processes.len());
            let stop = seconds(9).mul_f64(world.rng.f64());
            match world.rng.u32(..4) {
                0 => world.processes[who].dead = true,
                1 => world.processes[who].stops_before_send = Some(stop),
                2 => world.processes[who].stopped = world.now + stop,
                _ => continue,
            }
            let process = Process::like(&world.processes[who]);
            world.join(process);
        }
        earns(&format!("all of it, {name}"), &mut world, seconds(30));
    }
}

#[test]
fn who_is_stopped_for_less_than_the_bound_is_not_refused() {
    let mut world = sixteen(7);
    // What a lease lives for beyond its last use, less the time for the way to the service.
    let bound = Duration::from_millis(9_500);
    let mut stopped = 0;
    while stopped < 200 {
        world.run_for(Duration::from_millis(700));
        let who = world.rng.usize(..world.processes.len());
        let process = &mut world.processes[who];
        if process.stopped <= world.now && process.stops_before_send.is_none() {
            process.stops_before_send = Some(bound.mul_f64(world.rng.f64()));
            stopped += 1;
        }
    }
    earns("200 stops between grant and send", &mut world, seconds(40));
}

/// Under the rules of the window alone, where fifty go at once if they can.
fn at_once(seed: u64, processes: usize) -> World {
    let mut world =
        World::new(seed, processes, 60).with_terms("50 1002000 20000 20040 0 -1 0 31002000");
    world.service = Service::by(Rule::SlidingLog);
    world.run_for(seconds(40));
    world
}

#[test]
fn who_is_stopped_for_longer_than_its_lease_may_be_refused() {
    for (what, mut world) in [("window", at_once(8, 1)), ("all rules", sixteen(8))] {
        let (rounds, mut late) = (4, 0);
        for _ in 0..rounds {
            // All at once, while others take their places; then they send all that they have kept.
            let first = world
                .processes
                .iter()
                .position(|process| process.backlog > 0);
            let stopped = first.expect("some")..world.processes.len();
            for who in stopped.clone() {
                let process = Process::like(&world.processes[who]);
                world.processes[who].stops_before_send = Some(seconds(25));
                world.join(process);
            }
            world.run_for(seconds(24));
            late += stopped
                .clone()
                .map(|who| world.processes[who].held())
                .sum::<usize>();
            for who in stopped {
                world.processes[who].backlog = 0;
            }
            world.run_for(seconds(40));
        }
        let refused = world.service.refused;
        println!("stops of 25 s, {what}: {late} sent too late, refused {refused}");
        // The bound is needed, and what is beyond it costs no more than what comes late.
        assert!(refused > 0 || what != "window");
        assert!(
            refused <= u64::try_from(late).expect("few"),
            "{refused} of {late}"
        );
    }
}

#[test]
fn another_memory_grants_nothing_until_all_that_was_granted_is_over() {
    for round in 0..12 {
        let mut world = sixteen(100 + round);
        world.hop = HOPS[usize::try_from(round).expect("few") % 3].1;
        world.loses = 20;
        world.run_for(Duration::from_millis(500 + 391 * round));
        let forgotten = world.now;
        if round % 2 == 0 {
            world.restart()
        } else {
            world.stores[0].flush()
        }
        world.run_for(seconds(75));
        let is_after = |sent: &&Duration| **sent > forgotten + seconds(2);
        let first = *world.sends.iter().find(is_after).expect("it opens again");
        let opens = Duration::from_micros(31_002_000);
        assert!(
            first >= forgotten + opens,
            "{round}: {:?}",
            first - forgotten
        );
        assert!(first < forgotten + seconds(34), "{:?}", first - forgotten);
        assert_eq!(
            world.service.refused,
            0,
            "{round}: {}",
            world.service.refusals()
        );
    }
}

#[test]
fn a_clock_that_goes_back_costs_nothing() {
    let mut world = sixteen(9);
    world.skew = -10_000_000;
    let back = world.now;
    world.run_for(seconds(30));
    let is_after = |sent: &&Duration| **sent > back + seconds(1);
    let first = *world.sends.iter().find(is_after).expect("it goes on") - back;
    assert!(first < seconds(2), "{first:?}");
    assert_eq!(world.service.refused, 0, "{}", world.service.refusals());
    let utilisation = earns("afterwards", &mut world, seconds(20));
    assert!(utilisation > 0.7, "{utilisation}");
}

#[test]
fn a_clock_that_goes_forward_costs_one_quota_at_the_most() {
    for jump in [1_000_000, 60_000_000] {
        for what in ["window", "all rules"] {
            let mut most = 0;
            for seed in 20..25 {
                let mut world = match what {
                    "window" => at_once(seed, 4),
                    _ => sixteen(seed),
                };
                world.run_for(Duration::from_millis(173 * seed));
                world.skew = jump;
                world.run_for(seconds(5));
                most = most.max(world.service.refused);
            }
            println!(
                "the clock goes forward by {} ms, {what}: at most {most} refused",
                jump / 1_000
            );
            assert!(most > 0 || what != "window", "it costs nothing?");
            assert!(most <= 50, "{most}");
        }
    }
}

#[test]
fn a_refusal_that_one_hears_silences_all() {
    for seed in 30..35 {
        let mut world = sixteen(seed);
        world.service = Service::by(Rule::SlidingLogAll);
        world.hop = Hop::None;
        world.run_for(seconds(5));
        world.disturb(50);
        let heard = world.refusals.len();
        world.run_for(seconds(4));
        let heard = &world.refusals[heard..];
        let (first, last) = (
            *heard.first().expect("a refusal"),
            *heard.last().expect("a refusal"),
        );
        let silent =
            |sent: &&Duration| **sent > first && **sent < last + Duration::from_millis(1_002);
        assert_eq!(
            world.sends.iter().find(silent),
            None,
            "heard at {first:?} and {last:?}"
        );
    }
}

#[test]
fn a_bucket_without_burst_is_found_out_after_a_few_refusals() {
    for name in ["near", "logn", "spike"] {
        let path = network(name);
        let mut world = World::new(11, 16, 4);
        (world.up, world.down) = (path.clone(), path);
        world.service = Service::by(Rule::LeakyBucket { burst: 0 });
        world.run_for(seconds(60));
        let (early, since, before) = (world.service.refused, world.now, world.service.arrived);
        world.run_for(seconds(60));
        let late = world.service.refused - early;
        let utilisation = world.utilisation(since, before);
        println!(
            "a bucket without burst, {name}: refused {early} in a minute, then {late}; {utilisation:.3}"
        );
        assert!(early <= 20, "{early}");
        assert_eq!(late, 0);
    }
}
