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

use crate::shares::{
    RedisServer, assert_clean, call, or_skip, reaches, redis_server::signal, remember, stage,
};

/// A process that calls until it is ended.
pub(crate) struct Process(Child);

// === impl Process ===

impl Process {
    fn start(store: &RedisServer, server: &Server, callers: u32) -> Self {
        let this = env::current_exe().unwrap();
        let callers = ("FLEET_CALLERS", callers.to_string());
        Self::of(&this, store, server, &[callers])
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
    let client = client.limits(Limits::default()).build().unwrap();
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
    let (store, server) = or_skip!(stage(Rule::SlidingCounter).await);
    let stays = Process::start(&store, &server, 10);
    for _ in 0..10 {
        let killed = Process::start(&store, &server, 10);
        sleep(Duration::from_millis(1_500)).await;
        drop(killed);
    }
    let took = reaches(&server, 30, 3).await;
    drop(stays);
    println!("{took:.1?} after ten processes were killed, one has had 30 a second for 3 s");
}

/// Paused containers, or lost hosts: the service still has the sockets of three processes, while the fourth wants more.
/// Later the three go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn stopped_and_continued_processes_cause_no_refusal() {
    let store = or_skip!(RedisServer::start());
    remember(&store);
    let mut config = Config::default();
    config.rule = Rule::SlidingCounter;
    config.faults.before_head = Delay::Constant(Duration::from_secs(1));
    let server = Server::start(config).await.unwrap();
    let processes = [(); 4].map(|()| Process::start(&store, &server, 60));
    sleep(Duration::from_secs(25)).await;
    let stopped = processes.iter().zip([5, 25, 30]);
    stopped.clone().for_each(|(one, _)| signal(&one.0, "-STOP"));
    for (process, seconds) in stopped {
        sleep(Duration::from_secs(seconds)).await;
        signal(&process.0, "-CONT");
    }
    sleep(Duration::from_secs(10)).await;
    let seen = assert_clean(&server);
    let peak = server.ledger().summary().peak_sockets;
    drop(processes);
    println!("three of four stopped: {seen} calls, {peak} sockets at most");
    assert!(seen > 1_000 && peak > 20, "{seen} {peak}");
}
