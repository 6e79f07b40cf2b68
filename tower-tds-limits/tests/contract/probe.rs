//! An inner service that insists on its contract.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use tokio::time::Instant;
use tower::Service;

pub(crate) const BODY: &str = "bus 307";

/// Panics on `call` without Ready, forgets readiness when cloned, gives Pending before each
/// Ready, and answers after one more Pending.
#[derive(Debug)]
pub(crate) struct Probe {
    shared: Arc<Shared>,
    readiness: Readiness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Unready,
    Asked,
    Ready,
}

#[derive(Debug, Default)]
struct Shared {
    arrivals: Mutex<VecDeque<Instant>>,
    readiness_fails: AtomicBool,
    calls_fail: AtomicBool,
    calls_hang: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProbeError;

// === impl Probe ===

impl Probe {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::default(),
            readiness: Readiness::Unready,
        }
    }

    pub(crate) fn fail_readiness(&self) {
        self.shared.readiness_fails.store(true, SeqCst);
    }

    pub(crate) fn fail_calls(&self) {
        self.shared.calls_fail.store(true, SeqCst);
    }

    pub(crate) fn never_answer(&self) {
        self.shared.calls_hang.store(true, SeqCst);
    }

    pub(crate) fn answer(&self) {
        self.shared.calls_hang.store(false, SeqCst);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.arrivals().len().try_into().expect("few calls")
    }

    pub(crate) fn arrivals(&self) -> VecDeque<Instant> {
        self.shared.arrivals.lock().expect("no panic").clone()
    }
}

impl Service<Request<Empty<Bytes>>> for Probe {
    type Response = Response<Full<Bytes>>;
    type Error = ProbeError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ProbeError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProbeError>> {
        if self.shared.readiness_fails.load(SeqCst) {
            return Poll::Ready(Err(ProbeError));
        }
        if self.readiness == Readiness::Asked {
            self.readiness = Readiness::Ready;
            Poll::Ready(Ok(()))
        } else {
            self.readiness = Readiness::Asked;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    fn call(&mut self, _request: Request<Empty<Bytes>>) -> Self::Future {
        assert_eq!(self.readiness, Readiness::Ready, "called without readiness");
        self.readiness = Readiness::Unready;
        let shared = Arc::clone(&self.shared);
        let arrivals = &shared.arrivals;
        arrivals.lock().expect("no panic").push_back(Instant::now());
        Box::pin(async move {
            tokio::task::yield_now().await;
            if shared.calls_hang.load(SeqCst) {
                pending::<()>().await;
            }
            if shared.calls_fail.load(SeqCst) {
                return Err(ProbeError);
            }
            Ok(Response::new(Full::from(BODY)))
        })
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            readiness: Readiness::Unready,
        }
    }
}

// === impl ProbeError ===

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the probe fails as told")
    }
}

impl std::error::Error for ProbeError {}
