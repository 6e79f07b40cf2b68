//! An inner service, and connector, that insists on its contract.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, pending},
    marker::PhantomData,
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
#[derive(Debug)]
pub(crate) struct Probe<K = Call> {
    shared: Arc<Shared>,
    readiness: Readiness,
    kind: PhantomData<K>,
}

/// Request and the response of a probe.
pub(crate) trait Kind {
    type Request;
    type Response;

    fn answer() -> Self::Response;
}

/// A request, answered with a small body.
#[derive(Debug)]
pub(crate) struct Call;

/// A connect, answered with a socket that the other side has closed.
#[derive(Debug)]
pub(crate) struct Connect;

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

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, ProbeError>> + Send>>;

// === impl Probe ===

impl Probe {
    pub(crate) fn new() -> Self {
        Self::of_its_kind()
    }
}

impl Probe<Connect> {
    pub(crate) fn connector() -> Self {
        Self::of_its_kind()
    }
}

impl<K> Probe<K> {
    fn of_its_kind() -> Self {
        Self {
            shared: Arc::default(),
            readiness: Readiness::Unready,
            kind: PhantomData,
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

impl<K: Kind> Service<K::Request> for Probe<K> {
    type Response = K::Response;
    type Error = ProbeError;
    type Future = Answer<K::Response>;

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

    fn call(&mut self, _: K::Request) -> Self::Future {
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
            Ok(K::answer())
        })
    }
}

impl<K> Clone for Probe<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            readiness: Readiness::Unready,
            kind: PhantomData,
        }
    }
}

// === impl Kind ===

impl Kind for Call {
    type Request = Request<Empty<Bytes>>;
    type Response = Response<Full<Bytes>>;

    fn answer() -> Self::Response {
        Response::new(Full::from(BODY))
    }
}

impl Kind for Connect {
    type Request = Uri;
    type Response = TokioIo<DuplexStream>;

    fn answer() -> Self::Response {
        TokioIo::new(duplex(64).0)
    }
}

// === impl ProbeError ===

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the probe fails as told")
    }
}

impl std::error::Error for ProbeError {}
