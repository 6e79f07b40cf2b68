//! One run: a hundred tasks, always backlogged, against one way of counting through one network.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use tds_sim::{Config, Sim};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds::{Limiter, Limits, layers::limits::RequestLimitLayer};

use crate::{
    judge::{Counting, Judge},
    models::Largest,
    network::Network,
};

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Counts of the simulated service.
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// Arrivals that the other meters did not accept.
    pub(crate) over: Vec<Duration>,
    /// Counts of the models, for each quota.
    pub(crate) largest: Vec<Largest>,
    /// Calls a second.
    pub(crate) rate: f64,
    /// Longest delay of a request on its way.
    pub(crate) longest_way: Duration,
}

/// The stages between the limiter and the service.
struct Between {
    network: Network,
    judges: Vec<Judge>,
}

/// The arrival of the request of a response, and the time of its body.
#[derive(Debug, Clone, Copy)]
struct Arrived(Duration, Duration);

/// Makes this many calls. Returns what the service counted for the first quota, by its own clock,
/// and what each judge counted.
pub(crate) async fn run(
    countings: &[Counting],
    network: Network,
    limits: Limits,
    calls: u32,
) -> Seen {
    let first = countings.first().expect("a quota");
    let mut config = Config::default();
    config.rule = first.rule;
    config.rate = first.limit;
    config.per = first.per;
    config.arrivals_kept = 1_000;
    config.expires_in = u64::from(u32::MAX); // A million calls take hours of the paused clock.
    let sim = Sim::new(config);
    let token = format!("Bearer {}", sim.token(sim.client_id()).expect("a token"));
    let token = HeaderValue::try_from(token).expect("a header");

    let start = Instant::now();
    let between = Arc::new(Mutex::new(Between {
        network,
        judges: countings.iter().copied().map(Counting::judge).collect(),
    }));
    let wire = service_fn({
        let (between, sim) = (Arc::clone(&between), sim.clone());
        move |request: Request<Full<Bytes>>| {
            let (between, sim) = (Arc::clone(&between), sim.clone());
            async move {
                let there = locked(&between).network.there(start.elapsed());
                sleep(there).await;
                let arrived = start.elapsed();
                let (head, body) = locked(&between).arrive(arrived);
                let mut answer = sim.oneshot(request).await?;
                answer.extensions_mut().insert(Arrived(arrived, body));
                sleep(head).await;
                Ok::<_, tds_sim::Error>(answer)
            }
        }
    });
    let limiter = Limiter::new(limits);
    let service = RequestLimitLayer::new(limiter.clone()).layer(wire);

    let made = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (service, token) = (service.clone(), token.clone());
        let (between, made) = (Arc::clone(&between), Arc::clone(&made));
        tasks.spawn(async move {
            while made.fetch_add(1, SeqCst) < calls {
                let request = Request::get("http://data.example/v1/live/bus")
                    .header("authorization", &token)
                    .body(Full::<Bytes>::default())
                    .expect("a request");
                let response = service.clone().oneshot(request).await.expect("an answer");
                let answered = response.extensions().get().copied();
                let Arrived(arrived, body) = answered.expect("it was put there");
                sleep(body).await;
                response.into_body().collect().await.expect("a whole body");
                locked(&between).end(arrived, start.elapsed());
            }
        });
    }
    tasks.join_all().await;

    let by_status = sim.ledger().summary().by_status;
    let Between { network, judges } = &*locked(&between);
    Seen {
        accepted: by_status.get(&200).copied().unwrap_or_default(),
        refused: by_status.get(&423).copied().unwrap_or_default(),
        over: judges
            .iter()
            .flat_map(|judge| judge.refused.clone())
            .collect(),
        largest: judges.iter().map(|judge| judge.models.largest()).collect(),
        rate: judges
            .first()
            .map(|judge| judge.models.rate())
            .unwrap_or_default(),
        longest_way: network.longest_way(),
    }
}

// === impl Seen ===

impl Seen {
    /// Asserts that no interval of the first quota holds more than it.
    pub(crate) fn assert_within(&self, countings: &[Counting]) {
        let (counting, largest) = (&countings[0], &self.largest[0]);
        assert!(largest.interval <= counting.limit as usize, "{self:?}");
    }
}

// === impl Between ===

impl Between {
    /// Records an arrival. Returns the times until the response head and of the body.
    fn arrive(&mut self, now: Duration) -> (Duration, Duration) {
        for judge in &mut self.judges {
            judge.arrive(now);
        }
        self.network.back(now)
    }

    fn end(&mut self, arrived: Duration, now: Duration) {
        for judge in &mut self.judges {
            judge.end(arrived, now);
        }
    }
}

fn locked(between: &Mutex<Between>) -> MutexGuard<'_, Between> {
    between.lock().expect("no other task has panicked")
}

const TASKS: u32 = 100;
