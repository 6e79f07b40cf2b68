//! Several processes behind one address: leases beside the shared counter that is in use elsewhere.
//!
//! ```text
//! cargo test --release -p tower-tds-fleet --test gateways the_table -- --ignored --nocapture
//! ```
//!
//! Each row is so many processes that call as fast as they may for 20 s, over one redis-server, through a relay whose
//! delays have a long tail, at nginx, HAProxy or the simulated service: what those have logged is the judge. Beside
//! the leases stands one process without a store, and GCRA in the same store (redis-cell's algorithm, as a script): it
//! bounds the times of grants, and not those of counts.
use std::{
    env,
    io::Read as _,
    num::NonZeroU32,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client as Hyper, rt::TokioExecutor};
use tds_sim::{Network, Relay, Rule};
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Limits, RequestBody, SharedLimits};
use tower_tds_fleet::{Fleet, redis};

use crate::{
    gateway::Kind,
    known::known,
    program::{find, say},
    redis_server::RedisServer,
};

const SPAN: Duration = Duration::from_secs(20);

/// The arrival time of the next request, kept in the store by the store's clock.
const GCRA: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
    local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) \
    local wait = tat - now - tonumber(ARGV[1]) * 20000 \
    if wait > 0 then return wait end \
    redis.call('SET', KEYS[1], string.format('%.0f', tat + 20000)) return 0";

/// Not a test by itself: what a process does.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process() {
    let Ok(how) = env::var("TABLE_HOW") else {
        return;
    };
    let store = var("TABLE_STORE");
    let limits = limits(var("TABLE_SOCKETS").parse().expect("a number"));
    match how.as_str() {
        "alone" => house(SharedLimits::new(limits)).await,
        "leases" => {
            let fleet = Fleet::join(&store, "table", &limits).expect("a store");
            house(SharedLimits::leased(limits, fleet)).await;
        }
        burst => gcra(&store, burst).await,
    }
}

#[tokio::test]
#[ignore = "a quarter of an hour"]
async fn the_table() {
    let programs = ["redis-server", "nginx", "haproxy"].map(find);
    assert!(
        programs.iter().all(Option::is_some),
        "it wants all of {programs:?}"
    );
    say("| who counts | processes | without a store | leases | GCRA, burst 50 | GCRA, burst 1 |");
    say("|---|---|---|---|---|---|");
    for (name, judge) in [
        ("nginx, burst 10", Kind::Nginx { burst: 10 }),
        ("HAProxy", Kind::Haproxy),
        ("a sliding log", Kind::Simulator(Rule::SlidingLog)),
        ("a weighing counter", Kind::Simulator(Rule::SlidingCounter)),
    ] {
        for processes in [1, 4, 16] {
            let mut row = format!("| {name} | {processes} |");
            for how in ["alone", "leases", "49", "0"] {
                if how == "alone" && processes > 1 {
                    row += " |";
                    continue;
                }
                let (refused, lost, served) = run(judge, processes, how).await;
                row += &format!(" {refused} refused, {lost} lost, {served:.3} |");
                if how == "alone" || how == "leases" {
                    assert_eq!((refused, lost), (0, 0), "{row}");
                }
            }
            say(&row);
        }
    }
}

/// How many were refused and lost, and how much of the quota was used in the second half.
async fn run(judge: Kind, processes: u32, how: &str) -> (usize, usize, f64) {
    let store = RedisServer::start().expect("redis-server is installed");
    let (service, gateway) = judge
        .start()
        .await
        .expect("nginx and haproxy are installed");
    let mut network = Network::default();
    network.there = "lognormal:10ms:200ms".parse().expect("a delay");
    network.back = network.there;
    network.seed = 7;
    let relay = Relay::start(gateway.address(), network).await;
    let relay = relay.expect("a free port");
    let token = service.sim().token(service.client_id()).expect("a token");
    // The address has 60 sockets, whoever has them, and each process one for its tokens.
    let sockets = 60 / processes;
    if how == "leases" {
        known(&store, "table", &limits(sockets)).await;
    }
    let this = env::current_exe().expect("this program");
    let children: Vec<_> = (0..processes)
        .map(|_| {
            let mut member = Command::new(&this);
            member
                .args(["--exact", "table::a_process", "--nocapture", "--quiet"])
                .env("TABLE_HOW", how)
                .env("TABLE_SOCKETS", sockets.to_string())
                .env("TABLE_STORE", store.url())
                .env("TABLE_AUTH", service.auth_url())
                .env("TABLE_BASE", format!("http://{}", relay.address()))
                .env("TABLE_ID", service.client_id())
                .env("TABLE_SECRET", service.client_secret())
                .env("TABLE_TOKEN", &token)
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            Process(member.spawn().expect("it starts"))
        })
        .collect();
    sleep(SPAN).await;
    let log = gateway.log(0).await;
    let lost = children.into_iter().map(Process::lost).sum();
    let half = log.last().unwrap_or_default() - SPAN.as_millis() as i64 / 2;
    let served = log.since(half).count(200) as f64;
    let served = served / 50.0 / (SPAN / 2).as_secs_f64();
    (log.count(423) + log.count(416), lost, served)
}

fn limits(sockets: u32) -> Limits {
    Limits::default().connections(NonZeroU32::new(sockets).expect("some"))
}

async fn house(limits: SharedLimits) {
    let id = Credentials::new(var("TABLE_ID"), var("TABLE_SECRET")).expect("plain");
    let client = Client::builder(&var("TABLE_AUTH"), &var("TABLE_BASE"), id)
        .loopback_http()
        .limits(limits)
        .build()
        .expect("loopback is let through");
    let url = format!("{}/v1/live/bus", var("TABLE_BASE"));
    for _ in 0..40 {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move {
            loop {
                let request = Request::get(&url).body(RequestBody::default());
                let response = client.clone().oneshot(request.expect("a request")).await;
                let is_whole = match response {
                    Ok(response) => response.into_body().collect().await.is_ok(),
                    Err(_) => false,
                };
                if !is_whole {
                    say("lost");
                }
            }
        });
    }
    sleep(SPAN.saturating_mul(2)).await;
}

async fn gcra(store: &str, burst: &str) {
    let store = redis::Client::open(store).expect("a URL");
    let connection = store.get_multiplexed_async_connection().await;
    let connection = connection.expect("a store");
    let client: Hyper<_, Empty<Bytes>> = Hyper::builder(TokioExecutor::new()).build_http();
    let ends = Instant::now() + SPAN.saturating_mul(2);
    for _ in 0..40 {
        let (client, mut connection, burst) =
            (client.clone(), connection.clone(), burst.to_owned());
        let url = format!("{}/v1/live/bus", var("TABLE_BASE"));
        let token = format!("Bearer {}", var("TABLE_TOKEN"));
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
                let is_whole = match response {
                    Ok(response) => {
                        let is_accepted = response.status().is_success();
                        is_accepted && response.into_body().collect().await.is_ok()
                    }
                    Err(_) => false,
                };
                if !is_whole {
                    say("lost");
                }
            }
        });
    }
    sleep_until(ends).await;
}

fn var(name: &str) -> String {
    env::var(name).expect("it is set")
}

struct Process(Child);

// === impl Process ===

impl Process {
    /// Ends it, and says how many calls it has lost.
    fn lost(mut self) -> usize {
        self.0.kill().expect("it is a child");
        let mut said = String::new();
        let out = self.0.stderr.as_mut().expect("it is piped");
        out.read_to_string(&mut said).expect("text");
        said.lines().filter(|line| *line == "lost").count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
