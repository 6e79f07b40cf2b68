//! Two fleets on one store, and one fleet of two versions.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use redis::cmd;
use tds_sim::{Rule, Server};
use tokio::{task::JoinSet, time::sleep};
use tower_tds::Limits;

use crate::shares::{
    Member, RedisServer, assert_clean, process::Process, remember, remember_as, service,
};

/// Measures the requests a second at each service.
async fn rates(servers: &[Server; 2], seconds: u64) -> [f64; 2] {
    let seen = || [0, 1].map(|at: usize| assert_clean(&servers[at]));
    let before = seen();
    sleep(Duration::from_secs(seconds)).await;
    let after = seen();
    [0, 1].map(|at| (after[at] - before[at]) as f64 / seconds as f64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn two_fleets_on_one_store_do_not_disturb_each_other() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let names = ["one", "two"];
    names.iter().for_each(|name| remember_as(name, &store));
    let servers = [
        service(Rule::SlidingCounter).await,
        service(Rule::SlidingCounter).await,
    ];
    let join = |at: usize| {
        let join = || Member::join_as(names[at], store.client(), &servers[at], Limits::default());
        (0..4).map(|_| join()).collect::<Vec<_>>()
    };
    let fleets = [join(0), join(1)];
    let mut running = [JoinSet::new(), JoinSet::new()];
    for member in &fleets[0] {
        member.call(15, &mut running[0]);
    }
    sleep(Duration::from_secs(6)).await;
    let [alone, _] = rates(&servers, 12).await;
    for member in &fleets[1] {
        member.call(15, &mut running[1]);
    }
    sleep(Duration::from_secs(6)).await;
    let both = rates(&servers, 12).await;
    // The first loses its record, so its shares do not grow for 17 s.
    let mut lose = cmd("DEL");
    lose.arg("{one}:shares")
        .exec(&mut store.connection())
        .unwrap();
    sleep(Duration::from_secs(2)).await;
    let [first, second] = [&fleets[0][0], &fleets[1][0]].map(|member| member.fleet.status());
    let beside = rates(&servers, 12).await;
    println!("alone {alone:.1}; both {both:.1?}; while the first does not grow {beside:.1?}");
    assert!(first.grows_in > Duration::from_secs(5), "{first:?}");
    assert_eq!(second.grows_in, Duration::ZERO);
    assert_eq!((first.members, second.members), (4, 4));
    for rate in [both[0], both[1], beside[1]] {
        assert!(rate >= 0.9 * alone, "{rate} of {alone}");
    }
}

/// A program of these tests from an earlier version, named by `FLEET_EARLIER`: `.ci/slow` builds it.
fn earlier() -> Option<PathBuf> {
    let earlier = env::var_os("FLEET_EARLIER").map(PathBuf::from);
    if earlier.is_none() {
        println!("SKIPPED: FLEET_EARLIER names no program of an earlier version");
    }
    earlier
}

/// Replaces four processes of one version by those of another, one every `pause`. Prints the rates.
async fn update(name: &str, from: &Path, to: &Path, pause: Duration) -> Option<()> {
    let store = RedisServer::start()?;
    remember(&store);
    let server = service(Rule::SlidingCounter).await;
    let start = |program: &Path| Some(Process::of(program, &store, &server, &[]));
    let mut processes: Vec<_> = (0..4).map(|_| start(from)).collect();
    let seen = async |seconds: u64| {
        let before = assert_clean(&server);
        sleep(Duration::from_secs(seconds)).await;
        (assert_clean(&server) - before) as f64 / seconds as f64
    };
    sleep(Duration::from_secs(8)).await;
    let usual = seen(10).await;
    let before = server.ledger().arrivals().len();
    let mut during = Vec::new();
    for process in &mut processes {
        if let Some(old) = process.take() {
            old.end().await;
        }
        *process = start(to);
        during.push(seen(pause.as_secs()).await);
    }
    sleep(Duration::from_secs(20)).await;
    let after = seen(10).await;
    let arrivals: Vec<_> = server.ledger().arrivals().iter().map(|a| a.at).collect();
    let gaps = arrivals[before.saturating_sub(1)..].windows(2);
    let longest = gaps.map(|pair| pair[1].saturating_sub(pair[0])).max();
    println!(
        "{name}: {usual:.1} a second, then {during:.1?}, then {after:.1}; longest gap {longest:.1?}"
    );
    assert!(longest.unwrap() <= Duration::from_secs(20), "{longest:?}");
    assert!(after >= 0.85 * usual, "{after} of {usual}");
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_rolling_update_and_its_way_back_cause_no_refusal() {
    let (Some(earlier), this) = (earlier(), env::current_exe().unwrap()) else {
        return;
    };
    for (name, from, to) in [
        ("to this version", &earlier, &this),
        ("back to the one before", &this, &earlier),
    ] {
        let _skipped = update(name, from, to, Duration::from_secs(8)).await;
    }
}

/// The same without another version, so that it runs wherever there is a store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_rolling_update_of_members_that_leave_keeps_the_rate() {
    let this = env::current_exe().unwrap();
    let _skipped = update("to the same version", &this, &this, Duration::from_secs(8)).await;
}
