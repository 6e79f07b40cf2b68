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
use tokio::{task::JoinSet, time::sleep};
use tower_tds::{Credentials, Limits};
use tower_tds_fleet::Fleet;

use crate::shares::{RedisServer, assert_clean, call, reaches, remember, service};

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
