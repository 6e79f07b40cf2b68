//! A network with jitter and a service behind it, which remembers when requests arrived.

use std::{
    convert::Infallible,
    f64::consts::TAU,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::time::{Instant, sleep};
use tower::Service;

/// Counts requests as they come out of the network.
#[derive(Debug, Clone)]
pub(crate) struct Counting {
    begin: Instant,
    network: Arc<Mutex<Network>>,
}

#[derive(Debug)]
struct Network {
    rng: fastrand::Rng,
    arrivals: Vec<Duration>,
}

// === impl Counting ===

impl Counting {
    pub(crate) fn new() -> Self {
        let network = Network {
            rng: fastrand::Rng::with_seed(7),
            arrivals: Vec::new(),
        };
        Self {
            begin: Instant::now(),
            network: Arc::new(Mutex::new(network)),
        }
    }

    /// When requests were counted, in order.
    pub(crate) fn arrivals(&self) -> Vec<Duration> {
        let mut arrivals = self.lock().arrivals.clone();
        arrivals.sort_unstable();
        arrivals
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<Request<Empty<Bytes>>> for Counting {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Empty<Bytes>>) -> Self::Future {
        let service = self.clone();
        let sent = self.begin.elapsed();
        let (there, back) = {
            let mut network = self.lock();
            (delay(&mut network.rng, sent), delay(&mut network.rng, sent))
        };
        Box::pin(async move {
            sleep(there).await;
            let counted = service.begin.elapsed();
            service.lock().arrivals.push(counted);
            sleep(SERVICE.saturating_add(back)).await;
            Ok(Response::new(Empty::new()))
        })
    }
}

/// Requests a second.
pub(crate) fn rate(arrivals: &[Duration]) -> f64 {
    let last = arrivals.last().copied().unwrap_or_default();
    let count = u32::try_from(arrivals.len()).unwrap_or(u32::MAX);
    f64::from(count) / last.as_secs_f64().max(f64::EPSILON)
}

/// Lognormal, median 10 ms, one in a hundred above 200 ms; what is under way while the network
/// stalls arrives at the end of that.
fn delay(rng: &mut fastrand::Rng, sent: Duration) -> Duration {
    let normal = (-2.0 * rng.f64().max(f64::EPSILON).ln()).sqrt() * (TAU * rng.f64()).cos();
    let delay = Duration::from_secs_f64((0.010 * (1.29 * normal).exp()).min(1.0));
    let into_cycle = sent.as_secs_f64() % STALL_EVERY;
    let stalled = STALL_EVERY - into_cycle;
    if stalled < STALL {
        delay.max(Duration::from_secs_f64(stalled))
    } else {
        delay
    }
}

const SERVICE: Duration = Duration::from_millis(60);

/// Seconds.
const STALL_EVERY: f64 = 5.0;
const STALL: f64 = 0.3;
