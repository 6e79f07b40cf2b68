//! A fleet over a real store and real sockets. The ledger of the simulated service decides.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]
#![expect(clippy::print_stdout, reason = "recovery times are printed")]

mod cluster;
mod faults;
mod fleets;
mod operators;
mod process;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod tls;
mod token;

use std::time::Duration;

use redis::cmd;
use redis_server::{RedisServer, free_port, or_skip};
use tds_sim::{Config, Delay, Rule, Server};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower_tds::{Call, Client, Credentials, Limits};
use tower_tds_fleet::{Fleet, Store};

pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) fleet: Fleet,
    url: String,
}

// === impl Member ===

impl Member {
    pub(crate) fn join(store: impl Into<Store>, server: &Server, limits: Limits) -> Self {
        let client = client(server, limits);
        let fleet = Fleet::join(store, "test", server.base_url(), client.limiter()).unwrap();
        let url = format!("{}/v1/live/bus", server.base_url());
        Self { client, fleet, url }
    }

    pub(crate) fn get(&self) -> Call {
        self.client.get(&self.url)
    }

    /// Starts callers, which call until the set is dropped.
    pub(crate) fn call(&self, callers: usize, running: &mut JoinSet<()>) {
        call(&self.client, &self.url, callers, running);
    }
}

pub(crate) fn client(server: &Server, limits: Limits) -> Client {
    let id = Credentials::new(server.client_id(), server.client_secret());
    let client = Client::builder(server.auth_url(), server.base_url(), id.unwrap());
    client.limits(limits).build().unwrap()
}

pub(crate) fn call(client: &Client, url: &str, callers: usize, running: &mut JoinSet<()>) {
    for _ in 0..callers {
        let (client, url) = (client.clone(), url.to_owned());
        running.spawn(async move {
            loop {
                if let Ok(response) = client.get(&url).await {
                    drop(response.text().await);
                } else {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
}

/// A service that counts by this rule, and answers after 100 ms.
pub(crate) async fn service(rule: Rule) -> Server {
    let mut config = Config::default();
    config.rule = rule;
    config.faults.before_head = Delay::Constant(Duration::from_millis(100));
    Server::start(config).await.unwrap()
}

/// Address of a service that is never called.
pub(crate) const ANYWHERE: &str = "https://data.example.org";

/// A store in which shares grow at once, and a service that counts by this rule. There is none without a redis-server.
pub(crate) async fn stage(rule: Rule) -> Option<(RedisServer, Server)> {
    let store = RedisServer::start()?;
    remember(&store);
    Some((store, service(rule).await))
}

/// Writes a record of the fleet without members, so that shares grow at once.
pub(crate) fn remember(store: &RedisServer) {
    let mut connection = store.connection();
    let info: String = cmd("INFO").arg("server").query(&mut connection).unwrap();
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let mut set = cmd("HSET");
    set.arg("{test}:shares")
        .arg(&["run", run.unwrap(), "began", "0", "quotas", "1000"]);
    set.exec(&mut connection).unwrap();
}

/// Runs a command of an administrator.
pub(crate) fn run(store: &RedisServer, command: &str, arguments: &[&str]) {
    let mut command = cmd(command);
    command
        .arg(arguments)
        .exec(&mut store.connection())
        .unwrap();
}

/// A store on a port of 127.0.0.1, with its address.
pub(crate) fn on_a_port() -> Option<(RedisServer, String)> {
    let mut port = 0;
    let store = RedisServer::start_with(|_| {
        port = free_port();
        [("--port", port.to_string())]
    });
    Some((store?, format!("127.0.0.1:{port}")))
}

/// Waits until the service has had `rate` requests a second for so long, from now on. Returns the time that took.
pub(crate) async fn reaches(server: &Server, rate: usize, seconds: usize) -> Duration {
    let (begun, earlier) = (Instant::now(), server.ledger().arrivals().len());
    let (enough, lasts) = (rate * seconds, Duration::from_secs(seconds as u64));
    let reached = async {
        loop {
            assert_clean(server);
            let arrivals = server.ledger().arrivals();
            let mut since = arrivals[earlier..].windows(enough);
            if since.any(|some| some[enough - 1].at - some[0].at <= lasts) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let reached = timeout(HANGS, reached).await;
    reached.unwrap_or_else(|_| panic!("never {rate} a second"));
    begun.elapsed()
}

/// Many times as long as anything takes on a busy machine.
pub(crate) const HANGS: Duration = Duration::from_secs(90);

/// Asserts by the ledger that nothing was refused. Returns the number of successful calls.
pub(crate) fn assert_clean(server: &Server) -> u64 {
    let seen = server.ledger().summary();
    for refused in [416, 423] {
        assert_eq!(seen.by_status.get(&refused), None, "{seen:?}");
    }
    assert!(seen.peak_sockets <= 60, "{seen:?}");
    seen.by_status.get(&200).copied().unwrap_or(0)
}
