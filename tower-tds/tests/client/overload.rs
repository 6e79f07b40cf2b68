//! Load beyond the quota, from callers with deadlines: what is sent is answered.
//!
//! The bars are asserted under paused time, where no machine is busy. Over sockets the gate asserts what no speed
//! changes. For the bars there, ask for a minute of each load, as in the table of BENCHMARKS.md:
//! `OVERLOAD_SECONDS=60 cargo test --release -p suites client::overload -- --nocapture`.

use std::{env, time::Duration};

use fastrand::Rng;
use tds_sim::{Config, Sim};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower_tds::{
    Client, Kind,
    layers::errors::{GiveUp, Sent},
};

use crate::client::world::{Built as _, PATH, builder, faults, piped, read, start};

/// A load on the client of a service.
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
    /// The longest of all calls.
    slowest: Duration,
}

// === impl Load ===

impl Load {
    const OVER_SOCKETS: [Self; 5] = [
        Self::new(60.0, 80, 1, 0),
        Self::new(110.0, 80, 2, 0),
        Self::new(60.0, 600, 1, 0),
        Self::new(110.0, 600, 2, 0),
        Self::new(60.0, 80, 1, 400),
    ];

    const OTHERS: [Self; 4] = [
        Self::new(60.0, 80, 2, 0),
        Self::new(110.0, 80, 1, 0),
        Self::new(60.0, 600, 2, 0),
        Self::new(110.0, 600, 1, 0),
    ];

    const fn new(rate: f64, takes: u64, deadline: u64, stalls: u64) -> Self {
        Self {
            rate,
            takes,
            deadline,
            stalls,
        }
    }

    const fn deadline(self) -> Duration {
        Duration::from_secs(self.deadline)
    }

    /// The service that takes so long.
    fn config(self) -> Config {
        let mut config = Config::default();
        let (head, stall) = (self.takes, self.stalls);
        let texts = [format!("head={head}ms"), format!("data=stall:{stall}ms")];
        let texts = texts.each_ref().map(|text| &**text);
        config.faults = faults(&texts[..1 + usize::from(stall > 0)]);
        config
    }

    /// Makes calls for so long.
    async fn run(self, lasts: Duration, client: Client, deadline: Option<Duration>) -> Outcome {
        let mut rng = Rng::with_seed(7);
        let mut calls = JoinSet::new();
        let (begin, mut at) = (Instant::now(), Duration::ZERO);
        while at < lasts {
            sleep_until(begin + at).await;
            let mut call = client.get(PATH);
            if let Some(deadline) = deadline {
                call = call.deadline(deadline);
            }
            let call = read(call);
            calls.spawn(async move {
                let begin = Instant::now();
                (call.await, begin.elapsed())
            });
            at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / self.rate);
        }
        let mut outcome = Outcome::default();
        for (ended, took) in calls.join_all().await {
            outcome.slowest = outcome.slowest.max(took);
            let Err(error) = ended else {
                outcome.answered += 1;
                continue;
            };
            assert_eq!(error.gave_up(), Some(GiveUp::Deadline), "{error}");
            if error.kind() == Kind::LimitTimeout {
                assert_eq!(
                    (error.sent(), error.attempts()),
                    (Sent::Never, 0),
                    "{error}"
                );
                outcome.rejections.push(took);
            }
        }
        outcome
    }

    /// Counts the requests that calls without a deadline send, up to the last moment at which a call
    /// with one could be sent.
    async fn possible(self, sim: &Sim, lasts: Duration, client: Client) -> u64 {
        let ends = Instant::now() + lasts + self.deadline() - Duration::from_millis(self.takes);
        let calls = tokio::spawn(self.run(lasts, client, None));
        sleep_until(ends).await;
        calls.abort();
        sim.ledger().summary().data_calls
    }

    /// Asserts what no speed changes: nothing that was sent was refused, calls beyond the quota were rejected, nothing is
    /// sent after the deadlines, and after the load the client is healthy.
    ///
    /// Returns how many were sent.
    async fn judge(self, outcome: &Outcome, sim: &Sim, client: &Client) -> u64 {
        // A busy machine reads late what was sent in time.
        sleep(Duration::from_secs(2)).await;
        let summary = sim.ledger().summary();
        let statuses: Vec<_> = summary.by_status.keys().copied().collect();
        assert_eq!(statuses, [200], "{self:?}");
        assert!(summary.peak_sockets <= 60, "{self:?}: {summary:?}");
        assert!(!outcome.rejections.is_empty(), "{self:?}: it was too low");
        sleep(Duration::from_millis(1_500)).await;
        let after = sim.ledger().summary().data_calls;
        assert_eq!(after, summary.data_calls, "{self:?}: sent after a deadline");
        for _ in 0..20 {
            client.get(PATH).await.expect("the load is over");
        }
        summary.data_calls
    }

    /// Asserts the bars.
    #[expect(clippy::print_stdout, reason = "a row of a table")]
    fn measure(self, (sent, possible): (u64, u64), mut outcome: Outcome) {
        let share = outcome.answered as f64 / sent as f64;
        outcome.rejections.sort();
        let p99 = outcome.rejections.len() * 99 / 100;
        let p99 = outcome.rejections.get(p99).copied().unwrap_or_default();
        let rejections = outcome.rejections.len();
        println!("| {self:?} | {sent} of {possible} | {share:.3} | {rejections} | {p99:.1?} |");
        assert!(share >= 0.93, "{self:?}: {share} of {sent}");
        let is_used = sent as f64 >= 0.9 * possible as f64;
        assert!(is_used, "{self:?}: {sent} of {possible}");
        assert!(rejections > 10, "{self:?}: {rejections}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_under_overload_answers_what_it_sends_and_sends_what_the_quota_allows() {
    let lasts = Duration::from_secs(20);
    for load in Load::OVER_SOCKETS.into_iter().chain(Load::OTHERS) {
        let [sim, other] = [(); 2].map(|()| Sim::new(load.config()));
        let client = piped(&sim).built();
        let outcome = load.run(lasts, client.clone(), Some(load.deadline()));
        let outcome = outcome.await;
        assert!(outcome.slowest <= load.deadline(), "{load:?}: {outcome:?}");
        let sent = load.judge(&outcome, &sim, &client).await;
        let possible = load.possible(&other, lasts, piped(&other).built()).await;
        load.measure((sent, possible), outcome);
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
            let outcome = load.run(lasts, client.clone(), Some(load.deadline()));
            let mut possible = None;
            let outcome = if asked.is_some() {
                let other = start(load.config()).await;
                let without = load.possible(other.sim(), lasts, builder(&other).built());
                let (outcome, without) = tokio::join!(outcome, without);
                possible = Some(without);
                outcome
            } else {
                outcome.await
            };
            let sent = load.judge(&outcome, server.sim(), &client).await;
            if let Some(possible) = possible {
                load.measure((sent, possible), outcome);
            }
        });
    }
    loads.join_all().await;
}
