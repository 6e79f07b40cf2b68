//! Fleets under paused time: real limiters, a model of the store, random networks and faults. Every
//! sum is audited.

mod world;

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_tds_limits::{Limits, Rules, Share};

use self::world::{Network, World};
use super::{Action, Answer, Event, Load, Member};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// So many members, a minute of random demand, and random faults.
async fn random(seed: u64, members: usize, network: Network) -> World {
    let mut rng = fastrand::Rng::with_seed(seed);
    let world = World::new(seed, Limits::default(), network);
    for _ in 0..members {
        world.join();
    }
    let ends = Instant::now() + Duration::from_secs(90);
    while Instant::now() < ends {
        sleep(ms(rng.u64(200..2_000))).await;
        let members = world.members();
        let member = &members[rng.usize(..members.len())];
        match rng.u8(..16) {
            0 => member.kill(),
            1 => member.stop(ms(rng.u64(100..30_000))),
            2 => member.cut(ms(rng.u64(100..20_000))),
            3 if rng.u8(..4) == 0 => world.forget(),
            4 => member.leave(),
            5 | 6 => world.join(),
            7 => member.refused(),
            8..=10 => member.call(0),
            _ => member.call(rng.usize(1..40)),
        }
    }
    world
}

#[tokio::test(start_paused = true)]
async fn random_fleets_keep_within_the_limits_through_every_fault() {
    // `FLEET_SEEDS=100` runs a hundred more.
    let more = std::env::var("FLEET_SEEDS").map_or(0, |more| more.parse().unwrap());
    let few = [
        (1, 2, Network::Quick),
        (2, 4, Network::Rough),
        (3, 9, Network::Rough),
        (4, 16, Network::Quick),
        (5, 50, Network::Rough),
        (6, 3, Network::Far),
    ];
    let networks = [Network::Quick, Network::Rough, Network::Far];
    let more = (10..10 + more).map(|seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        (seed, rng.usize(2..50), networks[rng.usize(..3)])
    });
    for (seed, members, network) in few.into_iter().chain(more) {
        let world = random(seed, members, network).await;
        let counted = world.audit();
        println!("seed {seed}: {members} members, {network:?}: {counted} requests");
        assert!(counted > 300, "seed {seed}: {counted}");
    }
}

/// The rate of all together after ten seconds, with so many callers in each busy member.
async fn rate(limits: Limits, members: usize, busy: usize, network: Network) -> f64 {
    let world = World::new(7, limits, network);
    for _ in 0..members {
        world.join();
    }
    sleep(Duration::from_secs(20)).await;
    for member in &world.members()[..busy] {
        member.call(60 / busy.min(6));
    }
    sleep(Duration::from_secs(5)).await;
    let before = world.counted();
    sleep(Duration::from_secs(20)).await;
    let rate = (world.counted() - before) as f64 / 20.0;
    world.audit();
    rate
}

/// The same without a fleet.
async fn alone(limits: Limits) -> f64 {
    let world = World::new(7, limits, Network::Quick);
    world.join_alone();
    world.members()[0].call(60);
    sleep(Duration::from_secs(5)).await;
    let before = world.counted();
    sleep(Duration::from_secs(20)).await;
    (world.counted() - before) as f64 / 20.0
}

#[tokio::test(start_paused = true)]
async fn a_fleet_is_nearly_as_fast_as_one_process() {
    let window = || Limits::default().rules(Rules::window());
    let (one, one_window) = (alone(Limits::default()).await, alone(window()).await);
    println!("alone {one} {one_window}");
    for (members, busy) in [(1, 1), (4, 4), (16, 16), (16, 1), (64, 64)] {
        let all = rate(Limits::default(), members, busy, Network::Quick).await / one;
        let by_window = rate(window(), members, busy, Network::Quick).await / one_window;
        println!("{busy} of {members} members: {all:.2} by default, {by_window:.2} by the window");
        assert!(
            all >= if members < 16 || busy == 1 {
                0.85
            } else {
                0.65
            },
            "{members}: {all}"
        );
        assert!(by_window >= 0.9, "{members}: {by_window}");
    }
}

#[test]
fn a_machine_that_was_suspended_gives_up_its_share_and_its_question() {
    let now = Instant::now();
    let share = Share {
        requests: 10,
        places: 2,
        connections: 3,
    };
    let answer = Answer {
        share,
        silence: Duration::ZERO,
    };
    let load = Load {
        whole: share,
        unit: 1,
        waiting: 1,
        ..Load::default()
    };
    let suspended = Load {
        suspended: true,
        ..load
    };
    let mut member = Member::new(now);
    let Action::Ask(first) = member.on(Event::Seen(load), now) else {
        panic!("it asks");
    };
    member.on(Event::Answered(first.number, answer), now);
    assert_eq!(member.share(now), share);
    let later = now + ms(300);
    let Action::Ask(second) = member.on(Event::Seen(load), later) else {
        panic!("it asks again");
    };
    // With a share or without one.
    for _ in 0..2 {
        let over = member.on(Event::Seen(suspended), later);
        assert_eq!(over, Action::Apply(Share::default(), later));
        assert_eq!(member.share(later), Share::default());
        member.on(Event::Answered(second.number, answer), later);
        assert_eq!(
            member.share(later),
            Share::default(),
            "its answer is too old"
        );
    }
}
