//! One run: callers, a limiter, the way to a service, and how that counts.

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tds_sim::Meter;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds::{Limiter, Limits, layers::limits::RequestLimitLayer};

use crate::{
    judge::{Counting, Judge, Largest},
    network::Network,
};

/// A service, what else happens to it, and the way to it.
pub(crate) struct World {
    /// The measure by which the service refuses.
    meter: Meter,
    /// They count the same requests without any effect on the client.
    judges: Vec<Judge>,
    network: Network,
    /// Requests of a stranger in a second, at random times.
    pub(crate) stranger: f64,
    next: Duration,
    /// Part of the answers that are 423 for another reason, until a time.
    pub(crate) other: f64,
    pub(crate) other_until: Duration,
    rng: Rng,
    seen: Seen,
}

/// The load of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// This many calls by busy callers.
    Calls(u32),
    /// Busy callers.
    Busy(Duration),
    /// Five calls a second at random times.
    Few(Duration),
}

/// The requests that were counted.
#[derive(Default, Clone)]
pub(crate) struct Seen {
    /// When requests came, and whether they were refused.
    came: Vec<(Duration, bool)>,
    /// How long each had waited for its permit.
    waits: Vec<Duration>,
    /// Arrivals that the judges did not accept.
    pub(crate) over: Vec<Duration>,
    /// Counts of the models, for each quota.
    pub(crate) largest: Vec<Largest>,
    /// Longest delay of a request on its way.
    pub(crate) longest_way: Duration,
}

/// The time at which a call was made.
#[derive(Debug, Clone, Copy)]
struct Made(Instant);

/// The arrival of the request of a response, and the time of its body.
#[derive(Debug, Clone, Copy)]
struct Arrived(Duration, Duration);

/// Makes this many calls to a service that counts in the first way. All ways are judged.
pub(crate) async fn run(
    countings: &[Counting],
    network: Network,
    limits: Limits,
    calls: u32,
) -> Seen {
    let mut world = World::new(countings[0], network);
    world.judges = countings.iter().copied().map(Counting::judge).collect();
    world.run(limits, Load::Calls(calls)).await
}

// === impl World ===

impl World {
    pub(crate) fn new(counting: Counting, network: Network) -> Self {
        Self {
            meter: counting.meter(),
            judges: Vec::new(),
            network,
            stranger: 0.0,
            next: Duration::ZERO,
            other: 0.0,
            other_until: Duration::MAX,
            rng: Rng::with_seed(3),
            seen: Seen::default(),
        }
    }

    pub(crate) fn seeded(mut self, seed: u64) -> Self {
        self.network = self.network.with_seed(seed);
        self.rng = Rng::with_seed(seed);
        self
    }

    pub(crate) async fn run(self, limits: Limits, load: Load) -> Seen {
        let start = Instant::now();
        let world = Arc::new(Mutex::new(self));
        let served = Arc::clone(&world);
        let wire = service_fn(move |request| serve(Arc::clone(&served), request, start));
        let service = RequestLimitLayer::new(Limiter::new(limits)).layer(wire);
        let ended = Arc::clone(&world);
        let call = move || {
            let mut request = Request::new(Full::<Bytes>::default());
            request.extensions_mut().insert(Made(Instant::now()));
            let (ended, answer) = (Arc::clone(&ended), service.clone().oneshot(request));
            async move {
                let answer = answer.await.expect("an answer");
                let Arrived(arrived, body) = *answer.extensions().get().expect("it was put there");
                sleep(body).await;
                answer.into_body().collect().await.expect("a whole body");
                locked(&ended).end(arrived, start.elapsed());
            }
        };
        let (calls, lasts) = match load {
            Load::Calls(calls) => (calls, Duration::ZERO),
            Load::Busy(lasts) => (u32::MAX, lasts),
            Load::Few(lasts) => (0, lasts),
        };
        let made = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (call, made) = (call.clone(), Arc::clone(&made));
            tasks.spawn(async move {
                while made.fetch_add(1, SeqCst) < calls {
                    call().await;
                }
            });
        }
        match load {
            Load::Calls(_) => drop(tasks.join_all().await),
            Load::Busy(_) => sleep(lasts).await,
            Load::Few(_) => {
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
        let world = locked(&world);
        let judges = world.judges.iter();
        Seen {
            over: judges.clone().flat_map(|it| it.refused.clone()).collect(),
            largest: judges.map(Judge::largest).collect(),
            longest_way: world.network.longest_way(),
            ..world.seen.clone()
        }
    }

    /// A request comes at `now`. Returns whether it is refused, and the times until the response
    /// head and of the body.
    fn arrive(&mut self, now: Duration) -> (bool, Duration, Duration) {
        while self.stranger > 0.0 && self.next <= now {
            self.meter.arrive(self.next);
            let between = -(1.0 - self.rng.f64()).ln() / self.stranger;
            self.next += Duration::from_secs_f64(between);
        }
        for judge in &mut self.judges {
            judge.arrive(now);
        }
        let is_other = now < self.other_until && self.rng.f64() < self.other;
        let is_refused = !self.meter.arrive(now) || is_other;
        self.seen.came.push((now, is_refused));
        let (head, body) = self.network.back(now);
        let quick = Duration::from_millis(20);
        (
            is_refused,
            if is_refused { head.min(quick) } else { head },
            body,
        )
    }

    fn end(&mut self, arrived: Duration, now: Duration) {
        self.meter.end(arrived, now);
        for judge in &mut self.judges {
            judge.end(arrived, now);
        }
    }
}

async fn serve(
    world: Arc<Mutex<World>>,
    request: Request<Full<Bytes>>,
    start: Instant,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let Made(made) = *request.extensions().get().expect("it was put there");
    let there = {
        let mut world = locked(&world);
        world.seen.waits.push(made.elapsed());
        world.network.there(start.elapsed())
    };
    sleep(there).await;
    let arrived = start.elapsed();
    let (is_refused, head, body) = locked(&world).arrive(arrived);
    sleep(head).await;
    let mut response = Response::new(Full::from("data"));
    if is_refused {
        *response.status_mut() = StatusCode::LOCKED;
    }
    response.extensions_mut().insert(Arrived(arrived, body));
    Ok(response)
}

fn locked(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().expect("no other task has panicked")
}

// === impl Seen ===

impl Seen {
    pub(crate) fn calls(&self) -> usize {
        self.came.len()
    }

    pub(crate) fn refused(&self) -> usize {
        let refused = self.came.iter().filter(|(_, is_refused)| *is_refused);
        refused.count()
    }

    /// The last arrival.
    fn last(&self) -> Duration {
        self.came.last().map(|(at, _)| *at).unwrap_or_default()
    }

    /// Requests in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls() as f64 / self.last().as_secs_f64()
    }

    /// The same from the first request on.
    pub(crate) fn rate_from_the_first(&self) -> f64 {
        self.rate_between(self.came[0].0, self.last())
    }

    /// The same between two times.
    pub(crate) fn rate_between(&self, from: Duration, until: Duration) -> f64 {
        let within = |at: Duration| from <= at && at < until;
        let came = self.came.iter().filter(|(at, _)| within(*at));
        came.count() as f64 / (until - from).as_secs_f64()
    }

    pub(crate) fn median_wait(&self) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits.get(waits.len() / 2).copied().unwrap_or_default()
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (refused, rate) = (self.refused(), self.rate());
        write!(f, "{refused} refused of {}, {rate:.1}/s, ", self.calls())?;
        write!(f, "at most {:?}, over at {:?}", self.largest, self.over)
    }
}

const TASKS: u32 = 100;
