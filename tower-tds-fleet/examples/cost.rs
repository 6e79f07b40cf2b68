//! What a fleet costs: its store a grant, and a lone call its way there.
//!
//! ```text
//! cargo run --release -p tower-tds-fleet --example cost
//! ```
//!
//! One redis-server on a socket of this machine, so that a round trip has no network in it. The quota of 50 a second
//! is the default; the other one has the same rules. A minute in all.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "small numbers, and an overflow ends the program"
)]
#![expect(clippy::expect_used, reason = "a surprise ends the program")]
#![expect(clippy::print_stdout, reason = "the table")]

#[path = "../tests/support/known.rs"]
mod known;
#[path = "../tests/support/redis_server.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod redis_server;

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use redis::Connection;
use redis_server::RedisServer;
use tds_sim::{Config, Server};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Limits, RequestBody, SharedLimits};
use tower_tds_fleet::{Fleet, redis};
use tower_tds_limits::{AskLease, Ended, Leases, Outcome, Quota};

#[tokio::main]
async fn main() {
    println!("| what | figure |");
    println!("|---|---|");
    calls().await;
    for (requests, backlog) in [(50, 20), (10_000, 1_000)] {
        grants(requests, backlog).await;
    }
}

/// A round trip, and calls that come alone, by turns with a fleet and without.
async fn calls() {
    let store = RedisServer::start().expect("redis-server is installed");
    let limits = Limits::default();
    known::known(&store, NAME, &limits).await;
    let mut connection = store.client().get_multiplexed_async_connection().await;
    let connection = connection.as_mut().expect("a store");
    let mut trips = Vec::new();
    for _ in 0..500 {
        let began = Instant::now();
        let pong: Result<String, _> = redis::cmd("PING").query_async(connection).await;
        pong.expect("it answers");
        trips.push(began.elapsed());
        sleep(Duration::from_millis(2)).await;
    }
    println!("| PING to the store and back | {} |", spread(trips));

    let server = Server::start(Config::default()).await.expect("a server");
    let fleet = Fleet::join(&store.url(), NAME, &limits).expect("a store");
    let with = client(&server, SharedLimits::leased(limits.clone(), fleet));
    let without = client(&server, SharedLimits::new(limits));
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..250 {
        for (client, took) in [&with, &without].into_iter().zip(&mut took) {
            let url = format!("{}/v1/live/bus", server.base_url());
            let request = Request::get(url).body(RequestBody::default());
            let request = request.expect("a request");
            let began = Instant::now();
            let response = client.clone().oneshot(request).await.expect("an answer");
            response.into_body().collect().await.expect("all of it");
            // The first ones have a token to get.
            if round >= 10 {
                took.push(began.elapsed());
            }
            sleep(Duration::from_millis(40)).await;
        }
    }
    let [leased, alone] = took.map(spread);
    println!("| a lone call by one process without a store | {alone} |");
    println!("| a lone call of a fleet | {leased} |");
}

fn client(server: &Server, limits: SharedLimits) -> Client {
    let id = Credentials::new(server.client_id(), server.client_secret());
    Client::builder(server.auth_url(), server.base_url(), id.expect("plain"))
        .loopback_http()
        .limits(limits)
        .build()
        .expect("loopback is let through")
}

/// Four members that each have so many requests waiting or under way, which take 20 ms.
async fn grants(requests: u32, backlog: usize) {
    let store = RedisServer::start().expect("redis-server is installed");
    let quota = Quota::per_second(NonZeroU32::new(requests).expect("some"));
    let limits = Limits::new(quota).connections(NonZeroU32::MAX);
    known::known(&store, NAME, &limits).await;
    let mut connection = store.connection();
    let idle = Usage::of(&mut connection);
    sleep(Duration::from_secs(5)).await;
    let idle = Usage::of(&mut connection).since(&idle).processor / 5.0;
    let granted = Arc::new(AtomicU32::new(0));
    let members: Vec<_> = (0..4)
        .map(|_| Fleet::join(&store.url(), NAME, &limits).expect("a store"))
        .collect();
    let waiting: Vec<_> = (0..4 * backlog)
        .map(|at| {
            let member = members.get(at % members.len()).expect("some").clone();
            let granted = Arc::clone(&granted);
            tokio::spawn(async move {
                loop {
                    let lease = member.lease(AskLease::default()).await.expect("a lease");
                    granted.fetch_add(1, Relaxed);
                    sleep(Duration::from_millis(20)).await;
                    lease.end(Ended::Proven(Outcome::Answered));
                }
            })
        })
        .collect();
    sleep(Duration::from_secs(3)).await;
    let (began, before) = (Usage::of(&mut connection), granted.load(Relaxed));
    sleep(SPAN).await;
    let used = Usage::of(&mut connection).since(&began);
    let grants = granted.load(Relaxed) - before;
    for waiting in waiting {
        waiting.abort();
    }
    let (grants, span) = (f64::from(grants), SPAN.as_secs_f64());
    let busy = used.processor - idle * span;
    println!(
        "| at {requests} a second: granted in a second | {:.0} |",
        grants / span
    );
    println!("| the script: calls a grant | {:.2} |", used.calls / grants);
    println!(
        "| the script: usec_per_call of cmdstat_evalsha | {:.1} µs |",
        used.micros / used.calls
    );
    println!(
        "| the store's processor a grant, above {:.1} ms a second idle | {:.1} µs |",
        idle * 1e3,
        busy / grants * 1e6
    );
}

/// What the store says that it has used.
struct Usage {
    /// Seconds of a processor.
    processor: f64,
    /// Of the script.
    calls: f64,
    micros: f64,
}

// === impl Usage ===

impl Usage {
    fn of(connection: &mut Connection) -> Self {
        let mut info = redis::cmd("INFO");
        let info = info.arg("all").query::<String>(connection);
        let info = info.expect("it answers");
        let number = |name: &str| {
            let (_, after) = info.split_once(name)?;
            let end = after.find([',', '\r'])?;
            after.get(..end)?.parse::<f64>().ok()
        };
        let script = |name: &str| {
            let (_, after) = info.split_once("cmdstat_evalsha:")?;
            let (_, after) = after.split_once(name)?;
            after.split(',').next()?.parse::<f64>().ok()
        };
        let user = number("used_cpu_user:").expect("it says so");
        Self {
            processor: user + number("used_cpu_sys:").expect("it says so"),
            // Nothing before the first.
            calls: script("calls=").unwrap_or_default(),
            micros: script("usec=").unwrap_or_default(),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            processor: self.processor - before.processor,
            calls: self.calls - before.calls,
            micros: self.micros - before.micros,
        }
    }
}

fn spread(mut took: Vec<Duration>) -> String {
    took.sort_unstable();
    let at = |hundredth: usize| {
        let one = took.get(took.len() * hundredth / 100).expect("many");
        one.as_micros()
    };
    format!("p50 {} µs, p99 {} µs", at(50), at(99))
}

const NAME: &str = "cost";

const SPAN: Duration = Duration::from_secs(10);
