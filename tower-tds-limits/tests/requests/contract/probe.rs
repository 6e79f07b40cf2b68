//! An inner service, and connector, that insists on its contract.

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
use http::{Request, Response, Uri};
use http_body_util::{Empty, Full};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{DuplexStream, duplex},
    time::Instant,
};
use tower::Service;

pub(crate) const BODY: &str = "bus 307";

/// Panics on `call` without Ready, forgets readiness when cloned, gives Pending before each
/// Ready, and answers after one more Pending.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    shared: Arc<Shared>,
    readiness: Readiness,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    #[default]
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

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, ProbeError>> + Send>>;

// === impl Probe ===

impl Probe {
    pub(crate) fn new() -> Self {
        Self::default()
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

    pub(crate) fn answer_again(&self) {
        self.shared.calls_hang.store(false, SeqCst);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.arrivals().len().try_into().expect("few calls")
    }

    pub(crate) fn arrivals(&self) -> VecDeque<Instant> {
        self.shared.arrivals.lock().expect("no panic").clone()
    }
}

impl Probe {
    fn poll_readiness(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProbeError>> {
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

    fn answer<T: Send + 'static>(&mut self, answer: T) -> Answer<T> {
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
            Ok(answer)
        })
    }
}

/// Answers requests with a small body.
impl Service<Request<Empty<Bytes>>> for Probe {
    type Response = Response<Full<Bytes>>;
    type Error = ProbeError;
    type Future = Answer<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProbeError>> {
        self.poll_readiness(cx)
    }

    fn call(&mut self, _: Request<Empty<Bytes>>) -> Self::Future {
        self.answer(Response::new(Full::from(BODY)))
    }
}

/// Connects to a socket that the other side has closed.
impl Service<Uri> for Probe {
    type Response = TokioIo<DuplexStream>;
    type Error = ProbeError;
    type Future = Answer<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProbeError>> {
        self.poll_readiness(cx)
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.answer(TokioIo::new(duplex(64).0))
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
