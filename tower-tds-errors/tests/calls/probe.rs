//! A service that panics if the readiness contract is broken, and records its requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service};
use tower_tds_errors::Attempt;

pub(crate) type Answer = Result<Response<Full<Bytes>>, BoxError>;

/// It is not ready at the first poll after a clone or a call. A clone does not inherit readiness.
pub(crate) struct Probe {
    shared: Arc<Shared>,
    ready: Readiness,
}

#[derive(Clone, Copy, PartialEq)]
enum Readiness {
    Fresh,
    Waiting,
    Ready,
}

struct Shared {
    answer: Box<dyn Fn(usize) -> Answer + Send + Sync>,
    latency: Duration,
    broken_after: usize,
    start: Instant,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Duration,
    pub(crate) attempt: u32,
    pub(crate) line: String,
}

// === impl Probe ===

impl Probe {
    /// Answers call `n`, counted from 0, by `answer(n)`.
    pub(crate) fn new(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::with(answer, Duration::ZERO, usize::MAX)
    }

    /// Takes `latency` for each call, and fails to become ready after `broken_after` calls.
    pub(crate) fn with(
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
        latency: Duration,
        broken_after: usize,
    ) -> Self {
        let shared = Shared {
            answer: Box::new(answer),
            latency,
            broken_after,
            start: Instant::now(),
            seen: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            ready: Readiness::Fresh,
        }
    }

    /// Answers all calls by one status.
    pub(crate) fn always(status: u16) -> Self {
        Self::new(move |_| Ok(status_of(status)))
    }

    /// The requests, with times since the probe was made.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.shared.seen.lock().unwrap()
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            ready: Readiness::Fresh,
        }
    }
}

impl Service<Request<Full<Bytes>>> for Probe {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.lock().len() >= self.shared.broken_after {
            return Poll::Ready(Err("the probe is broken".into()));
        }
        match self.ready {
            Readiness::Fresh => {
                self.ready = Readiness::Waiting;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Readiness::Waiting | Readiness::Ready => {
                self.ready = Readiness::Ready;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        assert!(self.ready == Readiness::Ready, "called without being ready");
        self.ready = Readiness::Fresh;
        let mut seen = self.lock();
        let number = seen.len();
        seen.push(Seen {
            at: self.shared.start.elapsed(),
            attempt: Attempt::of(request.extensions()),
            line: format!(
                "{} {} {:?} {:?} {:?}",
                request.method(),
                request.uri(),
                request.version(),
                request.headers(),
                request.body(),
            ),
        });
        drop(seen);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            sleep(shared.latency).await;
            (shared.answer)(number)
        })
    }
}

pub(crate) fn status_of(status: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("body"));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

pub(crate) fn get(uri: &str) -> Request<Full<Bytes>> {
    Request::get(uri).body(Full::default()).unwrap()
}
