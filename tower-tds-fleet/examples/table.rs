//! Several processes behind one address: leases beside the shared counter that is in use elsewhere.
//!
//! ```text
//! cargo run --release -p tower-tds-fleet --example table
//! ```
//!
//! Each row is so many processes that call as fast as they may for 20 s, over one redis-server, at the
//! simulated service with a network between 20 and 400 ms there and back. The peer is GCRA in the same
//! store (redis-cell's algorithm, as a script): it bounds the times of grants, and not those of counts.
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
    env,
    num::NonZeroU32,
    process::{Child, Command, ExitCode},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client as Hyper, rt::TokioExecutor};
use redis_server::RedisServer;
use tds_sim::{Config, Delay, Rule, Server};
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Limits, RequestBody, SharedLimits};
use tower_tds_fleet::{Fleet, redis};

const SPAN: Duration = Duration::from_secs(20);

/// The arrival time of the next request, kept in the store by the store's clock.
const GCRA: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
    local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) \
    local wait = tat - now - tonumber(ARGV[1]) * 20000 \
    if wait > 0 then return wait end \
    redis.call('SET', KEYS[1], string.format('%.0f', tat + 20000)) return 0";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => table().await,
        [how, store, auth, base, id, secret, token] => {
            let service = Service {
                auth,
                base,
                id,
                secret,
                token,
            };
            match how.as_str() {
                "leases" => leases(store, &service).await,
                burst => gcra(store, burst, &service).await,
            }
        }
        _ => {
            println!(
                "it takes no arguments: cargo run --release -p tower-tds-fleet --example table"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

struct Service<'a> {
    auth: &'a str,
    base: &'a str,
    id: &'a str,
    secret: &'a str,
    token: &'a str,
}

async fn table() {
    println!("| the service counts | processes | leases | GCRA, burst 50 | GCRA, burst 1 |");
    println!("|---|---|---|---|---|");
    for (name, rule) in [
        ("a sliding log", Rule::SlidingLog),
        ("a weighing counter", Rule::SlidingCounter),
        ("a bucket of ten", Rule::LeakyBucket { burst: 10 }),
    ] {
        for processes in [1, 4, 16] {
            print!("| {name} | {processes} |");
            for how in ["leases", "49", "0"] {
                let (refused, served) = run(rule, processes, how).await;
                print!(" {refused} refused, {served:.3} |");
            }
            println!();
        }
    }
}

/// How many were refused, and how much of the quota was used, in the second half.
async fn run(rule: Rule, processes: u32, how: &str) -> (usize, f64) {
    let store = RedisServer::start().expect("redis-server is installed");
    let mut config = Config::default();
    config.rule = rule;
    // The peers have no limit of their own for sockets: only the rate is looked at.
    config.connections = u32::MAX;
    let way = Delay::LogNormal {
        median: Duration::from_millis(10),
        p99: Duration::from_millis(200),
    };
    config.faults.before_counting = way;
    config.faults.before_head = Delay::LogNormal {
        median: Duration::from_millis(90),
        p99: Duration::from_millis(400),
    };
    let server = Server::start(config).await.expect("a server");
    let token = server.sim().token(server.client_id()).expect("a token");
    if how == "leases" {
        known::known(&store, "table", &limits(processes)).await;
    }
    let this = env::current_exe().expect("this program");
    let children: Vec<_> = (0..processes)
        .map(|_| {
            let mut member = Command::new(&this);
            member.args([how, &store.url(), server.auth_url(), server.base_url()]);
            member.args([server.client_id(), server.client_secret(), &token]);
            Process(member.spawn().expect("it starts"))
        })
        .collect();
    sleep(SPAN).await;
    let arrivals = server.ledger().arrivals();
    drop(children);
    let last = arrivals
        .iter()
        .map(|arrival| arrival.at)
        .max()
        .unwrap_or_default();
    let half = last.saturating_sub(SPAN / 2);
    let refused = arrivals
        .iter()
        .filter(|arrival| arrival.status == Some(423))
        .count();
    let counted = arrivals
        .iter()
        .filter(|arrival| arrival.at > half && arrival.status == Some(200));
    let counted = u32::try_from(counted.count()).expect("few");
    (
        refused,
        f64::from(counted) / 50.0 / (SPAN / 2).as_secs_f64(),
    )
}

fn limits(processes: u32) -> Limits {
    // The address has 60 sockets, whoever has them.
    let sockets = 60_u32.checked_div(processes).and_then(NonZeroU32::new);
    Limits::default().connections(sockets.expect("some"))
}

async fn leases(store: &str, service: &Service<'_>) {
    // Few of them are in use.
    let limits = limits(4);
    let fleet = Fleet::join(store, "table", &limits).expect("a store");
    let id = Credentials::new(service.id, service.secret).expect("plain");
    let client = Client::builder(service.auth, service.base, id)
        .loopback_http()
        .limits(SharedLimits::leased(limits, fleet))
        .build()
        .expect("loopback is let through");
    let url = format!("{}/v1/live/bus", service.base);
    for _ in 0..40 {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move {
            loop {
                let request = Request::get(&url).body(RequestBody::default());
                let response = client.clone().oneshot(request.expect("a request")).await;
                if let Ok(response) = response {
                    drop(response.into_body().collect().await);
                }
            }
        });
    }
    sleep(SPAN.saturating_mul(2)).await;
}

async fn gcra(store: &str, burst: &str, service: &Service<'_>) {
    let store = redis::Client::open(store).expect("a URL");
    let connection = store.get_multiplexed_async_connection().await;
    let connection = connection.expect("a store");
    let client: Hyper<_, Empty<Bytes>> = Hyper::builder(TokioExecutor::new()).build_http();
    let ends = Instant::now() + SPAN.saturating_mul(2);
    for _ in 0..40 {
        let (client, mut connection, burst) =
            (client.clone(), connection.clone(), burst.to_owned());
        let url = format!("{}/v1/live/bus", service.base);
        let token = format!("Bearer {}", service.token);
        tokio::spawn(async move {
            loop {
                let script = redis::Script::new(GCRA);
                let mut asked = script.key("{table}:gcra");
                let wait: i64 = asked
                    .arg(&burst)
                    .invoke_async(&mut connection)
                    .await
                    .expect("an answer");
                if let Ok(wait @ 1..) = u64::try_from(wait) {
                    sleep(Duration::from_micros(wait)).await;
                    continue;
                }
                let request = Request::get(&url).header("authorization", &token);
                let response = client
                    .request(request.body(Empty::new()).expect("a request"))
                    .await;
                if let Ok(response) = response {
                    drop(response.into_body().collect().await);
                }
            }
        });
    }
    sleep_until(ends).await;
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
