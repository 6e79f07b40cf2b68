//! One run: a hundred tasks, always backlogged, against one way of counting through one network.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use tds_sim::{Config, Rule, Sim};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds::{Limiter, Limits, layers::limits::RequestLimitLayer};

use crate::{
    models::{Largest, Models},
    network::Network,
};

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Seen {
    /// By the simulated service.
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// By the models.
    pub(crate) largest: Largest,
    /// Calls a second.
    pub(crate) rate: f64,
}

/// Makes so many calls and gives what the service and the models saw.
pub(crate) async fn run(rule: Rule, network: Network, limits: Limits, calls: u32) -> Seen {
    let mut config = Config::default();
    config.rule = rule;
    config.arrivals_kept = 1_000;
    config.expires_in = u64::from(u32::MAX); // A million calls take hours of the paused clock.
    let sim = Sim::new(config);
    let token = format!("Bearer {}", sim.token(sim.client_id()).expect("a token"));
    let token = HeaderValue::try_from(token).expect("a header");

    let start = Instant::now();
    let between = Arc::new(Mutex::new((network, Models::default())));
    let wire = service_fn({
        let (between, sim) = (Arc::clone(&between), sim.clone());
        move |request: Request<Full<Bytes>>| {
            let (between, sim) = (Arc::clone(&between), sim.clone());
            async move {
                let there = locked(&between).0.there(start.elapsed());
                sleep(there).await;
                let back = {
                    let (network, models) = &mut *locked(&between);
                    models.arrive(start.elapsed());
                    network.back(start.elapsed())
                };
                let answer = sim.oneshot(request).await;
                sleep(back).await;
                answer
            }
        }
    });
    let service = RequestLimitLayer::new(Limiter::new(limits)).layer(wire);

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
                response.into_body().collect().await.expect("a whole body");
                locked(&between).1.end(start.elapsed());
            }
        });
    }
    tasks.join_all().await;

    let by_status = sim.ledger().summary().by_status;
    let (_, models) = &*locked(&between);
    Seen {
        accepted: by_status.get(&200).copied().unwrap_or_default(),
        refused: by_status.get(&423).copied().unwrap_or_default(),
        largest: models.largest,
        rate: models.rate(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no other task has panicked")
}

const TASKS: u32 = 100;
