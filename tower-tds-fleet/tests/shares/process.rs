//! Members that are processes: killed, stopped, started in a loop.

use std::{
    env,
    io::Read as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::Client;
use tds_sim::{Config, Delay, Rule, Server};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower_tds::{Credentials, Limits};
use tower_tds_fleet::Fleet;

use crate::shares::{Member, RedisServer, assert_clean, call, reaches, remember, service};

/// A process that calls until it is ended.
pub(crate) struct Process(Child);

// === impl Process ===

impl Process {
    fn start(store: &RedisServer, server: &Server) -> Self {
        Self::start_with(store, server, 10)
    }

    fn start_with(store: &RedisServer, server: &Server, callers: u32) -> Self {
        let this = env::current_exe().unwrap();
        Self::of(
            &this,
            store,
            server,
            &[("FLEET_CALLERS", callers.to_string())],
        )
    }

    /// Starts a program of these tests, which may be of another version.
    pub(crate) fn of(
        program: &Path,
        store: &RedisServer,
        server: &Server,
        more: &[(&str, String)],
    ) -> Self {
        let process = Command::new(program)
            .args(["process::member_process", "--nocapture"])
            .env("FLEET_STORE", store.url())
            .env("FLEET_AUTH", server.auth_url())
            .env("FLEET_DATA", server.base_url())
            .env("FLEET_ID", server.client_id())
            .env("FLEET_SECRET", server.client_secret())
            .envs(more.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(process.unwrap())
    }

    /// Lets it leave, and waits for its end.
    pub(crate) async fn end(mut self) {
        drop(self.0.stdin.take());
        while self.0.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        kill.arg(signal).arg(self.0.id().to_string());
        assert!(kill.status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Not a test by itself: the program of a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn member_process() {
    let Ok(store) = env::var("FLEET_STORE") else {
        return;
    };
    let var = |name: &str| env::var(name).unwrap();
    let id = Credentials::new(var("FLEET_ID"), var("FLEET_SECRET")).unwrap();
    let client = tower_tds::Client::builder(&var("FLEET_AUTH"), &var("FLEET_DATA"), id);
    let client = client
        .loopback_http()
        .limits(Limits::default())
        .build()
        .unwrap();
    let store = Client::open(store).unwrap();
    let fleet = Fleet::join(store, "test", &var("FLEET_DATA"), client.limiter()).unwrap();
    let mut running = JoinSet::new();
    let or = |name: &str, usual: &str| env::var(name).unwrap_or_else(|_| usual.to_owned());
    call(
        &client,
        &format!("{}{}", var("FLEET_DATA"), or("FLEET_PATH", "/v1/live/bus")),
        or("FLEET_CALLERS", "10").parse().unwrap(),
        &mut running,
    );
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    drop(ended.await);
    fleet.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_killed_and_started_in_a_loop_cause_no_refusal() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    let server = service(Rule::SlidingCounter).await;
    let stays = Process::start(&store, &server);
    for _ in 0..10 {
        let killed = Process::start(&store, &server);
        sleep(Duration::from_millis(1_500)).await;
        drop(killed);
    }
    let took = reaches(&server, 30, 3).await;
    drop(stays);
    println!("{took:.1?} after ten processes were killed, one has had 30 a second for 3 s");
}

/// A place whose process dies soon after each start, as under a supervisor that does not back off. Prints
/// the rate of the three others by their own of before, and what the store keeps.
async fn looped(store: &RedisServer, lives: Duration) -> f64 {
    remember(store);
    let server = service(Rule::SlidingCounter).await;
    let members: Vec<_> = (0..3)
        .map(|_| Member::join(store.client(), &server, Limits::default()))
        .collect();
    let mut running = JoinSet::new();
    members.iter().for_each(|one| one.call(10, &mut running));
    let this = env::current_exe().unwrap();
    let path = [("FLEET_PATH", LOOPED.to_owned())];
    let start = || Process::of(&this, store, &server, &path);
    let others = || {
        assert_clean(&server);
        let arrivals = server.ledger().arrivals();
        arrivals.iter().filter(|one| *one.target != *LOOPED).count() as f64
    };
    let mut fourth = start();
    sleep(Duration::from_secs(8)).await;
    let first = others();
    sleep(Duration::from_secs(10)).await;
    let usual = (others() - first) / 10.0;
    let (before, began, mut starts, mut withheld) = (others(), Instant::now(), 0, 0);
    let mut longest = 0;
    while began.elapsed() < Duration::from_secs(60) {
        drop(fourth);
        fourth = start();
        starts += 1;
        sleep(lives).await;
        let status = members[0].fleet.status();
        withheld = status.withheld.requests.max(withheld);
        longest = records(store).max(longest);
    }
    let rate = (others() - before) / began.elapsed().as_secs_f64();
    drop(fourth);
    println!(
        "{starts} processes that live {lives:?}: the others {rate:.1} a second after {usual:.1}; {withheld} \
         requests withheld, {longest} fields in the hash"
    );
    rate / usual
}

/// The fields of the fleet's hash.
fn records(store: &RedisServer) -> u64 {
    let mut fields = redis::cmd("HLEN");
    fields
        .arg("{test}:shares")
        .query(&mut store.connection())
        .unwrap()
}

const LOOPED: &str = "/v1/live/bus?looped";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_member_killed_soon_after_each_start_leaves_the_others_most_of_the_rate() {
    for millis in [300, 700, 1_500, 3_000] {
        let Some(store) = RedisServer::start() else {
            return;
        };
        let rate = looped(&store, Duration::from_millis(millis)).await;
        assert!(rate >= 0.8, "{millis} ms: {rate}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn stopped_and_continued_processes_cause_no_refusal() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    let server = service(Rule::SlidingCounter).await;
    let processes: Vec<_> = (0..4).map(|_| Process::start(&store, &server)).collect();
    sleep(Duration::from_secs(5)).await;
    let mut stops = JoinSet::new();
    for (process, seconds) in processes.iter().zip([5, 20, 60]) {
        let id = process.0.id();
        process.signal("-STOP");
        stops.spawn(async move {
            sleep(Duration::from_secs(seconds)).await;
            let mut kill = Command::new("kill");
            assert!(
                kill.arg("-CONT")
                    .arg(id.to_string())
                    .status()
                    .unwrap()
                    .success()
            );
        });
    }
    while stops.join_next().await.is_some() {}
    sleep(Duration::from_secs(5)).await;
    let seen = assert_clean(&server);
    drop(processes);
    assert!(seen > 1_000, "{seen}");
}

/// Kills the processes of these places, each with the milliseconds until the next, and starts another in
/// each place if `restarts`. Prints the rate of all, before and during it, and the longest gap.
async fn killed(name: &str, kills: &[(usize, u64)], restarts: bool) -> Option<f64> {
    let store = RedisServer::start()?;
    remember(&store);
    let server = service(Rule::SlidingCounter).await;
    let mut processes: Vec<_> = (0..4)
        .map(|_| Some(Process::start(&store, &server)))
        .collect();
    sleep(Duration::from_secs(8)).await;
    let first = assert_clean(&server);
    sleep(Duration::from_secs(10)).await;
    let before = assert_clean(&server);
    let usual = (before - first) as f64 / 10.0;
    let (began, from) = (Instant::now(), server.ledger().arrivals().len());
    for (at, pause) in kills {
        processes[*at] = None;
        if restarts {
            processes[*at] = Some(Process::start(&store, &server));
        }
        sleep(Duration::from_millis(*pause)).await;
    }
    let rate = (assert_clean(&server) - before) as f64 / began.elapsed().as_secs_f64();
    let arrivals: Vec<_> = server.ledger().arrivals().iter().map(|a| a.at).collect();
    let gaps = arrivals[from.saturating_sub(1)..].windows(2);
    let longest = gaps.map(|pair| pair[1].saturating_sub(pair[0])).max();
    let longest = longest.unwrap_or_default();
    drop(processes);
    println!("{name}: {rate:.1} a second after {usual:.1}, longest gap {longest:.1?}");
    assert!(longest <= Duration::from_secs(20), "{name}: {longest:?}");
    Some(rate / usual)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn survivors_of_a_killed_process_keep_most_of_the_rate() {
    let rate = killed("one of four", &[(0, 40_000)], false).await;
    assert!(rate.is_none_or(|rate| rate >= 0.8), "{rate:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn processes_that_are_all_killed_and_restarted_send_within_20_s() {
    let all = [(0, 0), (1, 0), (2, 0), (3, 40_000)];
    killed("all killed and restarted", &all, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_process_killed_every_five_seconds_causes_no_refusal() {
    let kills: Vec<_> = (0..24).map(|_| (1, 5_000)).collect();
    killed("one place every 5 s", &kills, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn processes_killed_one_after_the_other_leave_the_last_most_of_the_rate() {
    let kills = [(0, 3_000), (1, 3_000), (2, 40_000)];
    let rate = killed("one after the other", &kills, false).await;
    assert!(rate.is_none_or(|rate| rate >= 0.7), "{rate:?}");
}

/// A paused container, or a lost host: the service still has the sockets of three processes, while the
/// fourth wants more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn sockets_of_stopped_processes_are_no_other_process() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    let mut config = Config::default();
    config.rule = Rule::SlidingCounter;
    config.faults.before_head = Delay::Constant(Duration::from_millis(1_500));
    let server = Server::start(config).await.unwrap();
    let start = || Process::start_with(&store, &server, 60);
    let processes: Vec<_> = (0..4).map(|_| start()).collect();
    sleep(Duration::from_secs(25)).await;
    processes[..3].iter().for_each(|one| one.signal("-STOP"));
    sleep(Duration::from_secs(30)).await;
    let seen = assert_clean(&server);
    let peak = server.ledger().summary().peak_sockets;
    drop(processes);
    println!("three of four stopped: {seen} calls, {peak} sockets at most");
    assert!(seen > 300 && peak > 20, "{seen} {peak}");
}
