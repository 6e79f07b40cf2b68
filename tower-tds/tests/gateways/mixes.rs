//! Random mixes of troubles on raw sockets: what a server counted stays within the limits, by exact
//! auditors.
//!
//! A seed chooses the stack, the rules, the instant at which the server counts, the network and the
//! habits of the callers. Callers in two runtimes cancel, abort, keep futures unpolled, drop bodies
//! half way and meet panics; the server hangs, resets, closes and hints; a relay delays and cuts.
//! Then everything ends, one call is answered again, the limiter is empty, and the server's times
//! are audited.
//!
//! | run | command |
//! |---|---|
//! | sixteen seeds, as the gate runs them | `cargo test -p suites --test gateways mixes` |
//! | any number, for any time | `MIXES_SEEDS=64 MIXES_SECONDS=60 cargo test -p suites --test gateways mixes -- --nocapture` |
//! | some seeds | `MIXES_FROM=7 MIXES_SEEDS=1 cargo test -p suites --test gateways mixes -- --nocapture` |
//! | cuts of 20 and 60 s (5 min) | `cargo test -p suites --test gateways mixes::random_mixes_with -- --ignored --nocapture` |

use std::{
    io::{self, Write},
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tower_tds::Limiter;

mod callers;
mod mix;
mod network;
mod server;

use self::{
    callers::Called,
    mix::{Level, Mix},
    network::Network,
    server::Server,
};

/// The relays, servers and auditors of all seeds share this runtime. Each client has its own two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_mixes_exceed_no_limit() {
    let runs = Duration::from_secs(from_env("MIXES_SECONDS", 20));
    assert_none_exceeds(from_env("MIXES_SEEDS", 16), runs, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "five minutes"]
async fn random_mixes_with_long_cuts_exceed_no_limit() {
    for cut in [20, 60].map(Duration::from_secs) {
        let runs = cut * 2 + Duration::from_secs(20);
        assert_none_exceeds(from_env("MIXES_SEEDS", 16), runs, cut).await;
    }
}

/// Runs the seeds side by side, sixteen at once, because each mostly waits.
async fn assert_none_exceeds(seeds: u64, runs: Duration, cut: Duration) {
    let first = from_env("MIXES_FROM", 0);
    let mut left = first..first + seeds;
    let (mut running, mut found) = (JoinSet::new(), Vec::new());
    loop {
        while running.len() < AT_ONCE
            && let Some(seed) = left.next()
        {
            running.spawn(run(Mix::of(seed, runs, cut)));
        }
        let Some(ended) = running.join_next().await else {
            break;
        };
        found.extend(ended.expect("a run does not panic"));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Runs one mix. Returns what it found wrong.
async fn run(mix: Mix) -> Option<String> {
    let (server, behind) = Server::start(&mix).await;
    let address = Network::start(&mix, behind).await;
    let begun = Instant::now();
    let (called, limiter) = Called::new(&mix, &format!("http://{address}"));
    let runtimes = [(); 2].map(|()| runtime());

    let mut rng = Rng::with_seed(mix.seed);
    let mut callers = JoinSet::new();
    for nth in 0..CALLERS {
        let calling = called
            .clone()
            .keep_calling(rng.fork(), mix.cancels, begun + mix.runs);
        callers.spawn_on(calling, runtimes[nth % 2].handle());
    }
    while callers.join_next().await.is_some() {}
    sleep_until(begun + mix.runs).await;
    let answered = called.answered();

    let mut wrong = Vec::new();
    server.calm();
    if timeout(BOUND, limiter.idle()).await.is_err() {
        wrong.push("requests stay in flight".to_owned());
    }
    if timeout(BOUND, until_answered(&called, &runtimes[0]))
        .await
        .is_err()
    {
        wrong.push("no call is answered again".to_owned());
    }
    drop(called);
    if timeout(BOUND, until_empty(&limiter)).await.is_err() {
        wrong.push(format!(
            "the limiter is not empty: {:?}",
            limiter.snapshot()
        ));
    }
    for runtime in runtimes {
        runtime.shutdown_background();
    }
    let counted = server.counted(begun);
    let levels = mix.audit(&counted, &server.sockets(begun));
    let over = levels.iter().filter(|level| level.is_over());
    wrong.extend(over.map(Level::to_string));
    if answered < LEAST {
        wrong.push("the calls stood still".to_owned());
    }
    let levels: Vec<_> = levels.iter().map(Level::to_string).collect();
    let (count, took, levels) = (counted.len(), begun.elapsed(), levels.join(", "));
    let seen = format!("{count} counted, {answered} answered in {took:.0?}; {levels}");
    writeln!(io::stderr(), "seed {}: {seen}: {wrong:?}", mix.seed).ok();
    (!wrong.is_empty()).then(|| format!("{wrong:?}: {seen}: {mix:?}"))
}

/// Calls until a call is answered.
async fn until_answered(called: &Called, runtime: &Runtime) {
    let before = called.answered();
    while called.answered() == before {
        let called = called.clone();
        let call = async move {
            timeout(Duration::from_secs(5), called.read(None))
                .await
                .ok()
        };
        runtime.spawn(call).await.ok();
    }
}

async fn until_empty(limiter: &Limiter) {
    loop {
        let now = limiter.snapshot();
        let waiting = now.waiting + now.connects_waiting;
        if now.live == 0 && now.in_flight + now.connections == 0 && waiting == 0 {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("threads")
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().expect("a number"))
}

/// An address that no other test uses. A connect that an earlier one has left behind may come to any port of
/// 127.0.0.1, where it would count.
const OWN: &str = "127.0.0.2:0";

/// Callers of each mix, in two runtimes.
const CALLERS: usize = 40;

const AT_ONCE: usize = 16;

/// Answered calls that show a mix in which something happened. Where most calls are cancelled, each
/// of them holds a permit for seconds.
const LEAST: u64 = 5;

/// Far longer than the longest permit: the 30 s of a socket whose end was lost.
const BOUND: Duration = Duration::from_secs(90);
