//! Members that are processes: they are killed, and stopped at any instant.

use std::{
    collections::BTreeMap,
    env,
    ops::Range,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use tds_sim::{Rule, Server};
use tokio::time::sleep;
use tower_tds::{Client, Credentials};
use tower_tds_fleet::RedisTokens;

use crate::{
    RedisServer, all_answered, get, known, member, process::Process, quick, service, statuses,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_cost_their_leases_for_a_while_and_nothing_else() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let server = service(Rule::SlidingLogAll, quick()).await;
    for _ in 0..4 {
        let killed = Process::start(&store, &server, server.base_url());
        sleep(Duration::from_millis(800)).await;
        drop(killed);
    }
    let members = [member(&store, &server)];
    all_answered(&members, &server, 100).await;
    let seen = statuses(&server);
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&200], "{seen:?}");
}

/// Three members are stopped 200 times, for less time than what was sent can be counted in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_stopped_at_any_instant_are_not_refused() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let server = service(Rule::SlidingLogAll, quick()).await;
    let processes: Vec<_> = (0..3)
        .map(|_| Process::start(&store, &server, server.base_url()))
        .collect();
    let mut rng = fastrand::Rng::with_seed(18);
    for _ in 0..67 {
        for process in &processes {
            process.signal("-STOP");
            sleep(Duration::from_millis(rng.u64(1..100))).await;
            process.signal("-CONT");
            sleep(Duration::from_millis(rng.u64(1..40))).await;
        }
    }
    drop(processes);
    let seen = statuses(&server);
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&200], "{seen:?}");
    assert!(seen.values().sum::<u64>() > 100, "{seen:?}");
}

/// Three members are each stopped so often, for so many milliseconds. Gives how many of each status there were.
async fn stopped(seed: u64, times: u32, millis: Range<u64>) -> Option<BTreeMap<u16, u64>> {
    let store = RedisServer::start()?;
    known(&store).await;
    let server = service(Rule::SlidingLogAll, quick()).await;
    let processes: Vec<_> = (0..3)
        .map(|_| Process::start(&store, &server, server.base_url()))
        .collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    let stops = processes.iter().map(|process| {
        let mut rng = rng.fork();
        let millis = millis.clone();
        async move {
            for _ in 0..times {
                sleep(Duration::from_millis(rng.u64(500..1_500))).await;
                process.signal("-STOP");
                sleep(Duration::from_millis(rng.u64(millis.clone()))).await;
                process.signal("-CONT");
            }
        }
    });
    let stops: Vec<_> = stops.collect();
    let mut stops = stops.into_iter();
    let [a, b, c] = [stops.next(), stops.next(), stops.next()].map(|stop| stop.expect("three"));
    tokio::join!(a, b, c);
    sleep(Duration::from_secs(2)).await;
    Some(statuses(&server))
}

/// For less than a lease may be used without the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_stopped_for_seconds_are_not_refused() {
    let Some(seen) = stopped(1, 3, 1_000..9_000).await else {
        return;
    };
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&200], "{seen:?}");
    assert!(seen.values().sum::<u64>() > 100, "{seen:?}");
}

/// F1, the longer run (4 min): `cargo test -p tower-tds-fleet --test rate stopped -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "four minutes"]
async fn processes_that_are_stopped_for_up_to_nine_seconds_are_not_refused() {
    let Some(seen) = stopped(2, 40, 100..9_000).await else {
        return;
    };
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&200], "{seen:?}");
}

/// F1 where it is not so: one for each that was in the gap, of 20 calls in each process (2 min).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two minutes"]
async fn processes_that_are_stopped_for_longer_than_their_leases_cost_what_was_in_the_gap() {
    let Some(seen) = stopped(3, 5, 15_000..25_000).await else {
        return;
    };
    println!("15 stops of 15 to 25 s: {seen:?}");
    let refused = seen.get(&423).copied().unwrap_or_default();
    assert!(refused <= 3 * 5 * 20, "{seen:?}");
    assert!(seen[&200] > 100, "{seen:?}");
}

/// Not a test by itself: a process that says its token.
#[tokio::test]
async fn a_cold_process() {
    let Ok(store) = env::var("TOKEN_STORE") else {
        return;
    };
    let var = |name: &str| env::var(name).expect("it is set");
    let store = redis::Client::open(store).expect("a URL");
    let id = Credentials::new(var("FLEET_ID"), var("FLEET_SECRET")).expect("plain");
    let tokens = RedisTokens::new(store, "cold", &var("FLEET_SECRET"));
    let client = Client::builder(&var("FLEET_AUTH"), &var("FLEET_BASE"), id)
        .loopback_http()
        .tokens(|builder| builder.store(tokens))
        .build()
        .expect("loopback is let through");
    let url = format!("{}/v1/live/bus", var("FLEET_BASE"));
    get(client, url).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_cold_processes_make_one_token_request() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    // The token takes longer than they take to start; the rate is not looked at.
    let mut config = tds_sim::Config::default();
    config.faults.token = vec!["slow:3s".parse().expect("a fault")];
    config.rate = 1_000;
    config.connections = 1_000;
    let server = Server::start(config).await.expect("a server");
    let this = env::current_exe().expect("this test");
    let start = |_| {
        let process = Command::new(&this)
            .args(["--exact", "processes::a_cold_process", "--nocapture"])
            .env("TOKEN_STORE", store.url())
            .env("FLEET_AUTH", server.auth_url())
            .env("FLEET_BASE", server.base_url())
            .env("FLEET_ID", server.client_id())
            .env("FLEET_SECRET", server.client_secret())
            .stdout(Stdio::null())
            .spawn();
        process.expect("it starts")
    };
    let processes: Vec<_> = (0..50).map(start).collect();
    let ended = tokio::task::spawn_blocking(|| {
        let ended = processes.into_iter().map(|mut process| process.wait());
        ended
            .map(|status| status.expect("it ends"))
            .collect::<Vec<_>>()
    });
    let ended = ended.await.expect("no panic");
    assert!(ended.iter().all(ExitStatus::success), "{ended:?}");
    let seen = server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 50));
    assert_eq!(seen.by_status, [(200, 50)].into());
}
