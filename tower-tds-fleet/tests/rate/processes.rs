//! Members that are processes: they are killed, and stopped at any instant.

use std::{
    env,
    io::{Read, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tds_sim::{Rule, Server};
use tokio::time::sleep;
use tower_tds::{Client, Credentials, SharedLimits};
use tower_tds_fleet::Fleet;

use crate::{RedisServer, all_answered, get, known, limits, member, quick, service, statuses};

/// A member that calls as fast as it may, 20 at a time, until it is ended.
struct Process(Child);

impl Process {
    fn start(store: &RedisServer, server: &Server) -> Self {
        let this = env::current_exe().expect("this test");
        let process = Command::new(this)
            .args(["--exact", "processes::a_process", "--nocapture"])
            .env("FLEET_STORE", store.url())
            .env("FLEET_AUTH", server.auth_url())
            .env("FLEET_BASE", server.base_url())
            .env("FLEET_ID", server.client_id())
            .env("FLEET_SECRET", server.client_secret())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(process.expect("it starts"))
    }

    fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        let status = kill.arg(signal).arg(self.0.id().to_string()).status();
        assert!(status.expect("kill").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Not a test by itself: what a process of these tests does.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process() {
    let Ok(store) = env::var("FLEET_STORE") else {
        return;
    };
    let var = |name: &str| env::var(name).expect("it is set");
    let fleet = Fleet::join(&store, "test", &limits()).expect("a store");
    let id = Credentials::new(var("FLEET_ID"), var("FLEET_SECRET")).expect("plain");
    let client = Client::builder(&var("FLEET_AUTH"), &var("FLEET_BASE"), id)
        .loopback_http()
        .limits(SharedLimits::leased(limits(), fleet))
        .build()
        .expect("loopback is let through");
    let url = format!("{}/v1/live/bus", var("FLEET_BASE"));
    for _ in 0..20 {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move {
            loop {
                // What a stopped process loses is not what is looked at.
                drop(get(client.clone(), url.clone()).await);
            }
        });
    }
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let _ended = ended.await;
    std::io::stdout().flush().expect("it is open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_cost_their_leases_for_a_while_and_nothing_else() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let server = service(Rule::SlidingLogAll, quick()).await;
    for _ in 0..4 {
        let killed = Process::start(&store, &server);
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
    let processes: Vec<_> = (0..3).map(|_| Process::start(&store, &server)).collect();
    for _ in 0..67 {
        for process in &processes {
            process.signal("-STOP");
            sleep(Duration::from_millis(fastrand::u64(1..100))).await;
            process.signal("-CONT");
            sleep(Duration::from_millis(fastrand::u64(1..40))).await;
        }
    }
    drop(processes);
    let seen = statuses(&server);
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&200], "{seen:?}");
    assert!(seen.values().sum::<u64>() > 100, "{seen:?}");
}
