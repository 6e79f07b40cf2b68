//! Fleets under paused time: real limiters and the real script. Every sum is audited.

mod costs;
mod model;
mod questions;
mod world;

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::time::{Instant, sleep};
use tower_tds_limits::{Rules, Share};

use self::{
    costs::{Fleet, cost},
    world::{BUCKET, Network, World},
};
use super::{Action, Answer, Event, LimiterState, Member};
use crate::store::tests::redis_server::or_skip;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Members fall silent while each has as many sockets as it gets, and answers are slow. Their sockets are not the
/// survivor's until a server has surely closed them.
#[tokio::test(start_paused = true)]
async fn sockets_of_silent_members_are_withheld_until_a_server_has_closed_them() {
    for (silent, members, takes, callers) in [
        (3, 4, 1_400, 0),
        (3, 4, 1_400, 60),
        (1, 4, 1_400, 60),
        (1, 2, 3_000, 60),
        (9, 10, 900, 60),
    ] {
        for (by_window, rules) in [(true, Rules::window()), (false, Rules::default())] {
            let quick = (Network::Quick, ms(takes));
            let world = or_skip!(World::start(members, 9, quick, rules).await);
            let members = world.members();
            let (silent, survivor) = (&members[..silent], &members[silent]);
            members.iter().for_each(|member| member.call(60));
            survivor.call(callers);
            sleep(ms(15_000)).await;
            let had: u32 = silent.iter().map(|one| one.sockets()).sum();
            silent.iter().for_each(|member| member.stop());
            survivor.call(60);
            sleep(ms(70_000)).await;
            let name = format!(
                "{} of {}, {takes} ms, {by_window}",
                silent.len(),
                members.len()
            );
            let status = survivor.status();
            println!("{name}: {had} silent, {status:?}");
            world.audit();
            assert!(status.withheld.connections >= had, "{name}: {had}");
            if by_window && silent.len() + 1 == members.len() {
                let all = status.share.connections + status.withheld.connections;
                assert_eq!(all, 58, "{name}: it has the rest");
                assert!(callers == 60 || had >= 45, "{name}: {had}");
            }
            sleep(status.sockets_free_in + ms(2_000)).await;
            assert_eq!(survivor.status().withheld.connections, 0, "{name}");
            world.audit();
        }
    }
}

/// Requests are free 17 s after a member's last question, long before its sockets.
#[tokio::test(start_paused = true)]
async fn survivor_of_four_has_four_fifths_of_the_quota_within_20_s() {
    let world = or_skip!(World::quick(4, 13).await);
    world.members().iter().for_each(|member| member.call(15));
    sleep(ms(15_000)).await;
    world.members()[1..].iter().for_each(|member| member.stop());
    sleep(ms(20_000)).await;
    let before = world.counted();
    sleep(ms(10_000)).await;
    let rate = (world.counted() - before) / 10;
    assert!(rate >= 40, "{rate}");
    world.audit();
}

/// Kills members of four as a lost host does, while the others go on. Each kill has the member's place, and the
/// milliseconds until the next. If `restarts`, a new member comes in its place at once. A third of the rate of one
/// process is left, and .8 of their own to members that were not killed; new members send their first request, or are
/// killed, within 20 s.
async fn killed(one: f64, name: &str, kills: &[(usize, u64)], restarts: bool) -> Option<()> {
    let world = World::quick(4, 11).await?;
    let mut members = world.members();
    members.iter().for_each(|member| member.call(10));
    let is_killed = |at: &usize| kills.iter().any(|(killed, _)| killed == at);
    let survivors: Vec<_> = (0..4).filter(|at| !is_killed(at)).collect();
    let survivors: Vec<_> = survivors.iter().map(|at| members[*at].clone()).collect();
    let theirs = || survivors.iter().map(|one| one.counted()).sum::<u32>();
    sleep(ms(20_000)).await;
    let first = theirs();
    sleep(ms(20_000)).await;
    let (before, theirs_before, began) = (world.counted(), theirs(), Instant::now());
    let usual = f64::from(theirs_before - first) / 20.0;
    let mut new = tokio::task::JoinSet::new();
    let mut withheld = 0;
    for (at, pause) in kills {
        members[*at].kill();
        if restarts {
            let member = world.join();
            member.call(10);
            members[*at] = member.clone();
            new.spawn(async move {
                let began = Instant::now();
                while member.counted() == 0 && !member.is_stopped() {
                    sleep(ms(100)).await;
                }
                began.elapsed()
            });
        }
        sleep(ms(*pause)).await;
        for member in members.iter().filter(|member| !member.is_stopped()) {
            withheld = member.status().withheld.connections.max(withheld);
        }
    }
    let lasted = began.elapsed().as_secs_f64();
    let all = (world.counted() - before) as f64 / lasted / one;
    let theirs = f64::from(theirs() - theirs_before) / lasted / usual;
    let slowest = new.join_all().await.into_iter().max().unwrap_or_default();
    println!("{name}: {all:.2}, survivors {theirs:.2}, {slowest:.1?}, {withheld} sockets withheld");
    assert!(all >= 0.33 && withheld <= 60, "{name}: {all}, {withheld}");
    assert!(survivors.is_empty() || theirs >= 0.8, "{name}: {theirs}");
    assert!(slowest <= ms(20_000), "{name}: {slowest:?}");
    world.audit();
    Some(())
}

#[tokio::test(start_paused = true)]
async fn killed_members_leave_most_of_the_rate_and_their_successors_send_within_20_s() {
    let one = or_skip!(cost(Network::Quick, Fleet::None, (60, 0), Rules::default()).await).rate;
    let turn: Vec<_> = (0..24).map(|at| (at % 4, 5_000)).collect();
    let all = [(0, 0), (1, 0), (2, 0), (3, 60_000)];
    let three = [(0, 3_000), (1, 3_000), (2, 60_000)];
    let loops = |lives: u64| (0..120_000 / lives).map(|_| (1, lives)).collect::<Vec<_>>();
    for (name, kills, restarts) in [
        ("one of four is killed", &[(0, 60_000)][..], false),
        ("all are killed and restarted", &all, true),
        ("one is killed every 5 s, in turn", &turn, true),
        ("the same one is killed every 7 s", &loops(7_000), true),
        ("the same one is killed every 3 s", &loops(3_000), true),
        ("the same one is killed every 0.7 s", &loops(700), true),
        ("three die one after the other", &three, false),
    ] {
        or_skip!(killed(one, name, kills, restarts).await);
    }
}

/// Ways with stalls of up to three seconds, and answers that overtake each other: evidence is wrong most often there.
#[tokio::test(start_paused = true)]
#[ignore = "takes a minute or more"]
async fn an_automatic_burst_is_rarely_refused_in_a_fleet() {
    for takes in [0, 900, 1_900] {
        let (mut refused, mut sent) = (0, 0);
        for seed in 0..20 {
            let rough = (Network::Rough, ms(takes));
            let world = or_skip!(World::start(4, seed, rough, Rules::default()).await);
            world.members().iter().for_each(|one| one.call(15));
            sleep(ms(120_000)).await;
            refused += world.refused(BUCKET, 0);
            sent += world.counted();
        }
        let of = refused as f64 * 1e5 / sent as f64;
        println!("{takes} ms beyond the way: {refused} of {sent} requests, {of:.1} of 100,000");
        assert!(of <= 20.0, "{of}");
    }
}

/// A member may be the first to notice the step, or is stopped before it.
#[tokio::test(start_paused = true)]
async fn forward_step_of_the_store_clock_exceeds_nothing() {
    for (seed, step) in (0..6).zip([1_500, 6_000, 20_000].into_iter().cycle()) {
        let world = or_skip!(World::quick(4, seed).await);
        let members = world.members();
        members.iter().for_each(|member| member.call(15));
        sleep(ms(10_000)).await;
        if seed > 2 {
            members[3].stop();
            sleep(ms(4_000)).await;
        }
        world.ahead.fetch_add(step, Relaxed);
        sleep(ms(3_000)).await;
        let noticed = world.members()[0].status();
        assert!(noticed.grows_in > ms(10_000), "{step} ms: {noticed:?}");
        sleep(ms(27_000)).await;
        let before = world.counted();
        sleep(ms(10_000)).await;
        let rate = (world.counted() - before) / 10;
        assert!(rate >= 30, "{step} ms: {rate}");
        world.audit();
    }
}

/// The sockets of a pool stay open while it is idle, unless another member wants them.
#[tokio::test(start_paused = true)]
async fn idle_sockets_go_to_the_member_that_calls() {
    let slow = (Network::Quick, ms(1_400));
    let world = or_skip!(World::start(2, 5, slow, Rules::default()).await);
    let members = world.members();
    members[0].call(60);
    sleep(ms(30_000)).await;
    let had = members[0].sockets();
    members[0].call(0);
    members[1].call(60);
    sleep(ms(15_000)).await;
    let [idle, busy] = [0, 1].map(|at| members[at].sockets());
    assert!(had > 30 && busy > 30, "{had}, then {idle} and {busy}");
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn status_and_metrics_show_when_a_killed_share_is_free() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let gauge = |name: &str| -> f64 {
        let text = recorder.handle().render();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {text}"))
            .trim()
            .parse()
            .unwrap()
    };
    let world = or_skip!(World::quick(2, 3).await);
    let members = world.members();
    members.iter().for_each(|member| member.call(20));
    sleep(ms(5_000)).await;
    let (stays, dies) = (&members[0], &members[1]);
    let before = stays.status();
    assert_eq!(
        (before.members, before.requests_free_in),
        (2, Duration::ZERO)
    );
    assert_eq!(gauge("tds_fleet_members "), 2.0);
    dies.kill();
    // Waits past the end of the member's share.
    sleep(ms(7_000)).await;
    let status = stays.status();
    // Permits are free 17 s after the member's last question, sockets 80 s after it.
    let seconds = |from: u64, to: u64| ms(from * 1_000)..ms(to * 1_000);
    assert!(
        seconds(8, 11).contains(&status.requests_free_in),
        "{status:?}"
    );
    assert!(
        seconds(71, 74).contains(&status.sockets_free_in),
        "{status:?}"
    );
    let of = |of| gauge(&format!("tds_fleet_free_in_seconds{{of=\"{of}\"}} "));
    let withheld = |of| gauge(&format!("tds_fleet_withheld{{of=\"{of}\"}} "));
    for (shown, told) in [
        (gauge("tds_fleet_members "), 1.0),
        (of("requests"), status.requests_free_in.as_secs_f64()),
        (of("sockets"), status.sockets_free_in.as_secs_f64()),
        (withheld("requests"), status.withheld.requests.into()),
        (withheld("sockets"), status.withheld.connections.into()),
        (
            gauge("tds_fleet_share_requests "),
            status.share.requests.into(),
        ),
    ] {
        assert_eq!(shown, told, "{status:?}");
    }
    let withheld = status.withheld;
    assert!(withheld.requests > 10, "{status:?}");
    assert!(withheld.connections > 1, "{status:?}");
    assert!(gauge("tds_fleet_questions_total{answered=\"yes\"} ") > 20.0);
    sleep(status.requests_free_in + ms(2_000)).await;
    let status = stays.status();
    assert_eq!(status.requests_free_in, Duration::ZERO);
    assert!(status.share.requests > before.share.requests, "{status:?}");
    sleep(status.sockets_free_in + ms(2_000)).await;
    assert_eq!(stays.status().sockets_free_in, Duration::ZERO);
    world.audit();
}
