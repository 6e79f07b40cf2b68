//! Services that refuse all the same: because they are stricter than assumed, because a stranger uses
//! the quota, or for another reason. The bars are refusals, and what is sent nevertheless.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tds_sim::{Meter, Rule};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds::{
    Limiter, Limits,
    layers::limits::{Quota, RequestLimitLayer},
};

use crate::network::Network;

/// A service, what else happens to it, and the way to it.
struct World {
    meter: Meter,
    network: Network,
    /// Requests of a stranger in a second, at random times.
    stranger: f64,
    next: Duration,
    /// Part of the answers that are 423 for another reason, until a time.
    other: f64,
    other_until: Duration,
    rng: Rng,
    seen: Seen,
}

/// What the service saw.
#[derive(Debug, Default, Clone)]
struct Seen {
    /// When requests came, and whether they were refused.
    came: Vec<(Duration, bool)>,
    /// How long each had waited for its permit.
    waits: Vec<Duration>,
    strangers: u32,
    strangers_refused: u32,
}

/// The time at which a call was made.
#[derive(Debug, Clone, Copy)]
struct Made(Instant);

/// The load of a run.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// This many calls at once.
    Calls(usize),
    /// Sixty busy callers.
    Busy(Duration),
    /// Five calls a second at random times.
    Few(Duration),
}

// === impl World ===

impl World {
    fn new(rule: Rule, base: &str, jitter: &str, service: &str) -> Self {
        Self {
            meter: rule.meter(50, secs(1)),
            network: Network::new(base, jitter, service),
            stranger: 0.0,
            next: Duration::ZERO,
            other: 0.0,
            other_until: Duration::MAX,
            rng: Rng::with_seed(3),
            seen: Seen::default(),
        }
    }

    /// A gateway without a burst, nginx's default.
    fn burstless(base: &str, jitter: &str, service: &str) -> Self {
        Self::new(Rule::LeakyBucket { burst: 0 }, base, jitter, service)
    }

    fn near(rule: Rule) -> Self {
        Self::new(rule, "5ms", "uniform:0ms:10ms", "60ms")
    }

    fn seeded(mut self, seed: u64) -> Self {
        self.network = self.network.with_seed(seed);
        self.rng = Rng::with_seed(seed);
        self
    }

    /// A request comes at `now`: whether it is refused, and when its answer is back.
    fn arrive(&mut self, now: Duration) -> (bool, Duration) {
        while self.stranger > 0.0 && self.next <= now {
            self.seen.strangers += 1;
            self.seen.strangers_refused += u32::from(!self.meter.arrive(self.next));
            let between = -(1.0 - self.rng.f64()).ln() / self.stranger;
            self.next += Duration::from_secs_f64(between);
        }
        let is_other = now < self.other_until && self.rng.f64() < self.other;
        let is_refused = !self.meter.arrive(now) || is_other;
        self.seen.came.push((now, is_refused));
        let (head, _) = self.network.back(now);
        (is_refused, if is_refused { head.min(ms(20)) } else { head })
    }

    async fn run(self, load: Load) -> Seen {
        self.run_within(Limits::default(), load).await
    }

    async fn run_within(self, limits: Limits, load: Load) -> Seen {
        let start = Instant::now();
        let world = Arc::new(Mutex::new(self));
        let served = Arc::clone(&world);
        let wire = service_fn(move |request: Request<Full<Bytes>>| {
            let served = Arc::clone(&served);
            let Made(made) = *request.extensions().get().expect("it was put there");
            let locked = move |world: &Mutex<Self>| {
                let mut world = world.lock().expect("no other task has panicked");
                world.seen.waits.push(made.elapsed());
                world.network.there(start.elapsed())
            };
            let there = locked(&served);
            async move {
                sleep(there).await;
                let arrive = |world: &Mutex<Self>| {
                    let mut world = world.lock().expect("no other task has panicked");
                    world.arrive(start.elapsed())
                };
                let (is_refused, back) = arrive(&served);
                sleep(back).await;
                let mut response = Response::new(Full::<Bytes>::default());
                if is_refused {
                    *response.status_mut() = StatusCode::LOCKED;
                }
                Ok::<_, Infallible>(response)
            }
        });
        let service = RequestLimitLayer::new(Limiter::new(limits)).layer(wire);
        let call = move || {
            let mut request = Request::new(Full::<Bytes>::default());
            request.extensions_mut().insert(Made(Instant::now()));
            let answer = service.clone().oneshot(request);
            async move { drop(answer.await) }
        };
        let mut tasks = JoinSet::new();
        match load {
            Load::Calls(calls) => {
                (0..calls).for_each(|_| drop(tasks.spawn(call())));
                tasks.join_all().await;
            }
            Load::Busy(lasts) => {
                for _ in 0..60 {
                    let call = call.clone();
                    tasks.spawn(async move {
                        loop {
                            call().await;
                        }
                    });
                }
                sleep(lasts).await;
            }
            Load::Few(lasts) => {
                let mut rng = Rng::with_seed(11);
                let mut at = Duration::ZERO;
                while at < lasts {
                    sleep_until(start + at).await;
                    tasks.spawn(call());
                    while tasks.try_join_next().is_some() {}
                    at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / 5.0);
                }
            }
        }
        let world = world.lock().expect("no other task has panicked");
        world.seen.clone()
    }
}

// === impl Seen ===

impl Seen {
    fn refused(&self) -> usize {
        self.came
            .iter()
            .filter(|(_, is_refused)| *is_refused)
            .count()
    }

    /// Part of our requests that were refused.
    fn part(&self) -> f64 {
        self.refused() as f64 / self.came.len() as f64
    }

    /// Requests in a second.
    fn rate(&self) -> f64 {
        let last = self.came.last().map(|(at, _)| *at).unwrap_or_default();
        self.came.len() as f64 / last.as_secs_f64()
    }

    /// Requests in a second between two times.
    fn rate_between(&self, from: Duration, until: Duration) -> f64 {
        let within = |at: Duration| from <= at && at < until;
        let came = self.came.iter().filter(|(at, _)| within(*at));
        came.count() as f64 / (until - from).as_secs_f64()
    }

    fn median_wait(&self) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits.get(waits.len() / 2).copied().unwrap_or_default()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_a_burst_refuses_a_few_and_lets_most_of_the_rate_pass() {
    for (base, jitter, service, most, least) in [
        ("1ms", "none", "none", 14, 30.0),
        ("1ms", "uniform:0ms:5ms", "none", 15, 25.0),
        ("1ms", "none", "800ms", 14, 5.0),
        ("1ms", "stall:5s:300ms", "80ms", 45, 9.0),
    ] {
        for seed in 1..=4 {
            let world = World::burstless(base, jitter, service).seeded(seed);
            let seen = world.run(Load::Calls(600)).await;
            let (refused, rate) = (seen.refused(), seen.rate());
            let case = format!("{jitter}, {service}, {seed}: {refused} refused, {rate:.1}/s");
            assert!(refused <= most && rate >= least, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_with_a_burst_of_five_refuses_five_of_six_hundred() {
    for seed in 1..=4 {
        let world = World::new(
            Rule::LeakyBucket { burst: 5 },
            "1ms",
            "stall:5s:300ms",
            "80ms",
        );
        let seen = world.seeded(seed).run(Load::Calls(600)).await;
        assert!(seen.refused() <= 5, "{}", seen.refused());
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_quota_without_a_burst_keeps_half_of_its_rate() {
    for (rule, limit) in [
        (Rule::LeakyBucket { burst: 0 }, 5),
        (Rule::SlidingLogAll, 4),
    ] {
        let mut world = World::new(rule, "1ms", "uniform:0ms:5ms", "80ms");
        world.meter = rule.meter(limit, secs(1));
        let five = std::num::NonZeroU32::new(5).expect("5 is not zero");
        let limits = Limits::new(Quota::per_second(five));
        let seen = world.run_within(limits, Load::Calls(300)).await;
        let case = format!("{rule:?}: {} refused, {:.1}/s", seen.refused(), seen.rate());
        assert!(seen.refused() <= 15 && seen.rate() >= 2.5, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stricter_service_is_found_within_sixteen_refusals() {
    for limit in [40, 30, 10] {
        let mut world = World::near(Rule::SlidingLog);
        world.meter = Rule::SlidingLog.meter(limit, secs(1));
        let seen = world.run(Load::Busy(secs(9 * 60))).await;
        let case = format!("{limit}: {} refused, {:.1}/s", seen.refused(), seen.rate());
        assert!(
            seen.refused() <= 16 && seen.rate() >= 0.7 * f64::from(limit),
            "{case}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn beside_a_stranger_few_are_refused_and_a_tenth_of_the_rate_is_left() {
    let half = secs(30 * 60);
    for (rule, bars) in [
        (Rule::SlidingLog, [0.001, 0.006, 0.05]),
        (Rule::LeakyBucket { burst: 10 }, [0.001, 0.003, 0.015]),
    ] {
        for (stranger, most) in [10.0, 25.0, 40.0].into_iter().zip(bars) {
            let mut world = World::near(rule);
            world.stranger = stranger;
            let seen = world.run(Load::Busy(half)).await;
            let theirs = f64::from(seen.strangers_refused) / f64::from(seen.strangers);
            let (part, rate) = (seen.part(), seen.rate());
            let case =
                format!("{rule:?}, {stranger}/s: {part:.5}, {rate:.1}/s, theirs {theirs:.5}");
            assert!(part <= most && rate >= 5.0, "{case}");
        }
    }
}

/// A locked resource, say: no rate would avoid it.
#[tokio::test(start_paused = true)]
async fn refusals_for_another_reason_leave_a_sixth_and_are_forgotten_in_ten_minutes() {
    for (other, hours, least) in [(0.01, 6, 5.0), (0.05, 1, 5.0), (0.2, 1, 3.0)] {
        let mut world = World::near(Rule::SlidingLog);
        let lasts = secs(hours * 3_600);
        (world.other, world.other_until) = (other, lasts);
        let seen = world.run(Load::Busy(lasts + secs(1_200))).await;
        let during = seen.rate_between(Duration::ZERO, lasts);
        let after = seen.rate_between(lasts + secs(615), lasts + secs(1_200));
        let case = format!("{other}: {during:.1}/s, then {after:.1}/s");
        assert!(during >= least && after >= 40.0, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn five_calls_a_second_hardly_wait_beside_refusals_for_another_reason() {
    for (other, most) in [(0.01, secs(1)), (0.02, secs(2)), (0.05, secs(10))] {
        let mut world = World::near(Rule::SlidingLog);
        world.other = other;
        let seen = world.run(Load::Few(secs(3_600))).await;
        let wait = seen.median_wait();
        assert!(wait <= most, "{other}: {wait:?}");
    }
}
