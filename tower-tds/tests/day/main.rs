//! A day of faults, under paused time: the whole layer at the limit against the simulated service.
//!
//! `cargo test` runs an hour. The day with ten seeds, each of which repeats exactly:
//!
//! ```text
//! cargo test --release -p tower-tds --test day -- --ignored --nocapture
//! DAY_SEED=3 cargo test --release -p tower-tds --test day -- --ignored --nocapture
//! ```

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a test reports, and fails where it cannot go on"
)]

mod callers;
mod refused_tokens;
mod script;

use std::{env, sync::Mutex, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use tds_sim::{Config, Rule, Sim};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};
use tower_tds::{
    Credentials, CredentialsProvider, Limiter, Limits, TdsLayer,
    layers::{
        errors::RetryLayer,
        token::{Origin, TokenEndpoint, TokenSource},
    },
};

use self::{
    callers::{Callers, DEADLINE},
    script::{Latest, Played, Script, Secret},
};

const URL: &str = "http://127.0.0.1:1";
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = HOUR.saturating_mul(24);

/// The results of a run.
#[derive(Debug)]
struct Day {
    played: Played,
    callers: Callers,
    /// Data calls in the seconds that no fault touches, and the number of these seconds.
    calm: (u64, u64),
    /// 423s outside of the visits of strangers.
    earned: u64,
    data_calls: u64,
    token_posts: u64,
    /// Requests in flight, waiters and tasks at the end.
    left: (u32, usize, usize),
    in_progress: u64,
}

fn run(seed: u64, length: Duration) -> Day {
    paused(seed).block_on(day(seed, length))
}

/// A runtime of this thread, where also the waits of retries follow from the seed.
fn paused(seed: u64) -> Runtime {
    fastrand::seed(seed);
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime")
}

async fn day(seed: u64, length: Duration) -> Day {
    let mut config = Config::default();
    config.seed = seed;
    config.rule = match seed % 3 {
        0 => Rule::FixedWindow,
        1 => Rule::SlidingLogAll,
        _ => Rule::SlidingCounter,
    };
    config.arrivals_kept = 1_000;
    config.live_bytes = 200;
    let sim = Sim::new(config);
    let limiter = Limiter::new(Limits::default());
    let secret = Secret::new(Mutex::new(sim.client_secret().to_owned()));
    let layer = layer(&sim, &limiter, Secret::clone(&secret));

    let latest = Latest::default();
    let script = Script::new(seed, length, Latest::clone(&latest));
    let playing = tokio::spawn(script.play(sim.clone(), secret));
    let callers = tokio::spawn(Callers::run(seed, length, sim.clone(), layer, latest));

    // The ledger at each second.
    let start = Instant::now();
    let mut seconds = Vec::new();
    for second in 1..=length.as_secs() {
        sleep_until(start + Duration::from_secs(second)).await;
        let seen = sim.ledger().summary();
        let refused = seen.by_status.get(&423).copied().unwrap_or_default();
        seconds.push((seen.data_calls, refused));
    }
    let played = playing.await.expect("the script ends");
    let callers = callers.await.expect("the callers end");
    sleep(Duration::from_secs(120)).await; // Cancelled calls end in the background.

    let (mut calm, mut earned, mut before) = ((0, 0), 0, (0, 0));
    for (second, now) in (0..).zip(seconds) {
        let (calls, refused) = (now.0 - before.0, now.1 - before.1);
        before = now;
        if !played.is_touched(second) {
            calm = (calm.0 + calls, calm.1 + 1);
        }
        if !played.has_stranger(second) {
            earned += refused;
        }
    }
    let snapshot = limiter.snapshot();
    drop(limiter);
    yield_now().await;
    let seen = sim.ledger().summary();
    Day {
        played,
        callers,
        calm,
        earned,
        data_calls: seen.data_calls,
        token_posts: seen.token_posts,
        left: (
            snapshot.in_flight,
            snapshot.waiting,
            Handle::current().metrics().num_alive_tasks(),
        ),
        in_progress: seen.in_progress,
    }
}

/// Returns the whole layer. It reads the current credentials of the simulator for each token.
fn layer(sim: &Sim, limiter: &Limiter, secret: Secret) -> TdsLayer {
    let id = sim.client_id().to_owned();
    let provider = CredentialsProvider::from_fn(move || {
        let secret = secret.lock().expect("no panic").clone();
        let credentials = Credentials::new(id.clone(), secret);
        async move { credentials }
    });
    let endpoint = TokenEndpoint::keycloak(URL, "ServiceConnect").expect("loopback");
    let tokens = TokenSource::builder(endpoint, provider);
    let tokens = tokens.build::<_, Full<Bytes>, _>(sim.clone());
    let origin = Origin::from_uri(&http::Uri::from_static(URL)).expect("loopback");
    TdsLayer::new(tokens, [origin], limiter.clone()).retry(RetryLayer::new().deadline(DEADLINE))
}

impl Day {
    fn assert_kept(&self, seed: u64, length: Duration) {
        let (played, callers, calm) = (&self.played, &self.callers, self.calm);
        let (data_calls, token_posts) = (self.data_calls, self.token_posts);
        println!(
            "seed {seed}: {data_calls} calls, {:.3} of 50 a second in {} calm seconds; {token_posts} token requests; {played}; {callers}",
            calm.0 as f64 / (50 * calm.1) as f64,
            calm.1
        );
        assert_eq!(self.earned, 0, "seed {seed}: 423 without a stranger");
        assert_eq!(callers.unexcused(played.revocations()), [], "seed {seed}");
        // The rate is 50 a second, less the permits that unpolled calls hold.
        let left_over = calm.1 as f64 * (50.0 - callers.held() as f64 / length.as_secs_f64());
        let rate = calm.0 as f64 / left_over;
        assert!(rate >= 0.95, "seed {seed}: {rate} of what the faults leave");
        assert!(
            token_posts <= played.most_token_posts(),
            "seed {seed}: {token_posts} token requests"
        );
        assert!(
            callers.latest <= DEADLINE + Duration::from_millis(1),
            "seed {seed}: {:?}",
            callers.latest
        );
        assert_eq!(
            self.left,
            (0, 0, 0),
            "seed {seed}: in flight, waiting, tasks"
        );
        assert_eq!(self.in_progress, 0, "seed {seed}");
    }
}

#[test]
fn an_hour_of_faults_keeps_every_promise() {
    run(1, HOUR).assert_kept(1, HOUR);
}

#[test]
fn same_seed_repeats_the_run_and_memory_does_not_grow_with_the_calls() {
    let measured = |length| {
        let mut seen = String::new();
        let info = allocation_counter::measure(|| seen = format!("{:?}", run(3, length)));
        (seen, info.bytes_max)
    };
    let [(first, short), (second, _)] = [(); 2].map(|()| measured(HOUR / 12));
    assert_eq!(first, second);
    let (_, long) = measured(HOUR / 3);
    assert!(
        long < short + short / 4,
        "{short} bytes at most in five minutes, {long} in twenty"
    );
}

#[test]
#[ignore = "forty million calls take six minutes in a release build"]
fn a_day_of_faults_keeps_every_promise() {
    let only = env::var("DAY_SEED")
        .ok()
        .map(|seed| seed.parse().expect("a number"));
    for seed in only.map_or(1..=10, |seed| seed..=seed) {
        run(seed, DAY).assert_kept(seed, DAY);
    }
}
