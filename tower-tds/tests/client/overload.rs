//! Load beyond the quota, from callers with deadlines: what is sent is answered.
//!
//! The bars are asserted under paused time, where no machine is busy. Over sockets the gate asserts what no speed changes; there the
//! bars are asserted where you ask for a minute of each load, which the table of BENCHMARKS.md has:
//! `OVERLOAD_SECONDS=60 cargo test --release -p suites client::overload -- --nocapture`.

use std::{env, pin::Pin, time::Duration};

use fastrand::Rng;
use http_body_util::BodyExt as _;
use tds_sim::{Config, Sim};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower::ServiceExt as _;
use tower_tds::{
    Client, Kind,
    layers::{
        errors::{DeadlineAt, RetryLayer},
        limits::Limits,
    },
};

use crate::client::world::{Built as _, PATH, builder, faults, get, read, stack, start};

/// A load over sockets, or under paused time.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Calls a second, at random times.
    rate: f64,
    /// How long the service takes, in milliseconds.
    takes: u64,
    /// The deadline of each call, in seconds.
    deadline: u64,
    /// How long its body stalls, in milliseconds.
    stalls: u64,
}

/// The results of a load.
#[derive(Debug, Default)]
struct Outcome {
    answered: usize,
    /// Rejected, with the time that took.
    rejections: Vec<Duration>,
}

enum End {
    Answered,
    Rejected,
    Late,
}

// === impl Load ===

impl Load {
    const OVER_SOCKETS: [Self; 5] = [
        Self::new(60.0, 80, 1),
        Self::new(110.0, 80, 2),
        Self::new(60.0, 600, 1),
        Self::new(110.0, 600, 2),
        Self {
            stalls: 400,
            ..Self::new(60.0, 80, 1)
        },
    ];

    const fn new(rate: f64, takes: u64, deadline: u64) -> Self {
        Self {
            rate,
            takes,
            deadline,
            stalls: 0,
        }
    }

    const fn takes(self) -> Duration {
        Duration::from_millis(self.takes)
    }

    const fn deadline(self) -> Duration {
        Duration::from_secs(self.deadline)
    }

    /// The service that takes so long.
    fn config(self) -> Config {
        let mut config = Config::default();
        config.faults = match self.stalls {
            0 => faults(&[&format!("head={}ms", self.takes)]),
            stalls => faults(&[
                &format!("head={}ms", self.takes),
                &format!("data=stall:{stalls}ms"),
            ]),
        };
        config
    }

    /// Makes calls for so long.
    async fn run(self, lasts: Duration, call: &Calls) -> Outcome {
        let mut rng = Rng::with_seed(7);
        let mut calls = JoinSet::new();
        let (begin, mut at) = (Instant::now(), Duration::ZERO);
        while at < lasts {
            sleep_until(begin + at).await;
            let call = call();
            calls.spawn(async move {
                let begin = Instant::now();
                (call.await, begin.elapsed())
            });
            at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / self.rate);
        }
        let mut outcome = Outcome::default();
        for (end, took) in calls.join_all().await {
            match end {
                End::Answered => outcome.answered += 1,
                End::Rejected => outcome.rejections.push(took),
                End::Late => {}
            }
        }
        outcome
    }

    /// Counts the requests that calls without a deadline send, up to the last moment at which a call
    /// with one could be sent.
    async fn possible(self, sim: &Sim, lasts: Duration, call: Calls) -> u64 {
        let ends = Instant::now() + lasts + self.deadline() - self.takes();
        let calls = tokio::spawn(async move { self.run(lasts, &call).await });
        sleep_until(ends).await;
        calls.abort();
        sim.ledger().summary().data_calls
    }
}

fn ended(error: &tower_tds::Error) -> End {
    match error.kind() {
        Kind::LimitTimeout => End::Rejected,
        _ => End::Late,
    }
}

/// Makes a call.
type Calls = Box<dyn Fn() -> Pin<Box<dyn Future<Output = End> + Send>> + Send + Sync>;

/// Calls over sockets.
fn over_sockets(client: Client, allowed: Option<Duration>) -> Calls {
    Box::new(move || {
        let mut call = client.get(PATH);
        if let Some(allowed) = allowed {
            call = call.deadline(allowed);
        }
        let read = read(call);
        Box::pin(async {
            read.await
                .map_or_else(|error| ended(&error), |_| End::Answered)
        })
    })
}

/// Calls through the layer, under paused time.
fn paused(sim: &Sim, allowed: Option<Duration>) -> Calls {
    let stack = stack(sim, RetryLayer::new(), Limits::default());
    Box::new(move || {
        let mut request = get(PATH);
        if let Some(allowed) = allowed {
            let at = DeadlineAt::new((Instant::now() + allowed).into_std());
            request.extensions_mut().insert(at);
        }
        let call = stack.clone().oneshot(request);
        Box::pin(async move {
            match call.await {
                Ok(response) => match response.into_body().collect().await {
                    Ok(_) => End::Answered,
                    Err(_) => End::Late,
                },
                Err(error) => ended(&error),
            }
        })
    })
}

/// Asserts what no speed changes: nothing that was sent was refused, and calls beyond the quota were rejected.
///
/// Returns how many were sent.
fn judge(load: Load, outcome: &Outcome, sim: &Sim) -> u64 {
    let summary = sim.ledger().summary();
    let statuses: Vec<_> = summary.by_status.keys().copied().collect();
    assert_eq!(statuses, [200], "{load:?}");
    assert!(
        !outcome.rejections.is_empty(),
        "{load:?}: the load was too low"
    );
    summary.data_calls
}

/// Asserts the bars.
#[expect(clippy::print_stdout, reason = "a row of a table")]
fn measure(load: Load, (sent, possible): (u64, u64), mut outcome: Outcome) {
    let share = outcome.answered as f64 / sent as f64;
    outcome.rejections.sort();
    let p99 = outcome.rejections.len() * 99 / 100;
    let p99 = outcome.rejections.get(p99).copied().unwrap_or_default();
    let rejections = outcome.rejections.len();
    println!("| {load:?} | {sent} of {possible} | {share:.3} | {rejections} | {p99:.1?} |");
    assert!(share >= 0.93, "{load:?}: {share} of {sent}");
    assert!(
        sent as f64 >= 0.9 * possible as f64,
        "{load:?}: {sent} of {possible}"
    );
    assert!(rejections > 10, "{load:?}: {rejections}");
}

#[tokio::test(start_paused = true)]
async fn layer_under_overload_answers_what_it_sends_and_sends_what_the_quota_allows() {
    let lasts = Duration::from_secs(40);
    let times = [(80, 1), (80, 2), (600, 1), (600, 2)];
    for (rate, (takes, deadline)) in [60.0, 110.0]
        .into_iter()
        .flat_map(|rate| times.map(|times| (rate, times)))
    {
        let load = Load::new(rate, takes, deadline);
        let [sim, other] = [(); 2].map(|()| Sim::new(load.config()));
        let call = paused(&sim, Some(load.deadline()));
        let outcome = load.run(lasts, &call).await;
        let sent = judge(load, &outcome, &sim);
        // After the load it is healthy at once.
        sleep(Duration::from_secs(2)).await;
        for _ in 0..20 {
            assert!(matches!(call().await, End::Answered), "{load:?}");
        }
        let possible = load.possible(&other, lasts, paused(&other, None)).await;
        measure(load, (sent, possible), outcome);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_under_overload_sends_only_what_is_allowed_and_is_healthy_afterwards() {
    let asked = env::var("OVERLOAD_SECONDS").ok();
    let asked = asked.map(|seconds| Duration::from_secs(seconds.parse().expect("a number")));
    let lasts = asked.unwrap_or(Duration::from_secs(8));
    let mut loads = JoinSet::new();
    for load in Load::OVER_SOCKETS {
        loads.spawn(async move {
            let server = start(load.config()).await;
            let client = builder(&server).built();
            let calls = over_sockets(client.clone(), Some(load.deadline()));
            let outcome = load.run(lasts, &calls);
            if asked.is_some() {
                let other = start(load.config()).await;
                let without = over_sockets(builder(&other).built(), None);
                let possible = load.possible(other.sim(), lasts, without);
                let (outcome, possible) = tokio::join!(outcome, possible);
                let sent = judge(load, &outcome, server.sim());
                measure(load, (sent, possible), outcome);
            } else {
                judge(load, &outcome.await, server.sim());
            }
            for _ in 0..20 {
                client.get(PATH).await.expect("the load is over");
            }
        });
    }
    loads.join_all().await;
}
