//! The inner service, which a call that waits to send borrows.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::sync::oneshot;
use tower_service::Service;

/// The service inside a limit. It was made ready for one call, and is that call's until it is made or
/// given up: nobody else could be called without a second readiness, and it not before its time.
pub(super) struct Inner<S> {
    /// `None` while it is lent.
    here: Option<S>,
    lent: Option<Lent<S>>,
}

struct Lent<S> {
    /// Held while the service is called or cloned, and never across an `.await`.
    service: Arc<Mutex<S>>,
    /// Closed when it is back.
    back: oneshot::Receiver<Infallible>,
}

/// A service that is lent. Dropping this gives it back.
pub(super) struct Loan<S> {
    service: Arc<Mutex<S>>,
    /// Kept for its drop, which comes after the service's: then the lender has that alone.
    _back: oneshot::Sender<Infallible>,
}

// === impl Inner ===

impl<S> Inner<S> {
    pub(super) fn new(service: S) -> Self {
        Self {
            here: Some(service),
            lent: None,
        }
    }

    /// Waits until the service is here, and ready.
    ///
    /// # Errors
    /// The service's own.
    #[inline]
    pub(super) fn poll_ready<Request>(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<Request>,
    {
        if self.lent.is_some() {
            ready!(self.poll_back(cx));
        }
        self.service().poll_ready(cx)
    }

    /// Calls the service, which is ready.
    #[inline]
    pub(super) fn call<Request>(&mut self, request: Request) -> S::Future
    where
        S: Service<Request>,
    {
        self.service().call(request)
    }

    /// Lends the service, which is ready, to a call that waits to send.
    #[expect(clippy::expect_used, reason = "only what was ready is lent")]
    #[cold]
    pub(super) fn lend(&mut self) -> Loan<S> {
        let service = self.here.take().expect("a service is lent once");
        let service = Arc::new(Mutex::new(service));
        let (sender, back) = oneshot::channel();
        self.lent = Some(Lent {
            service: Arc::clone(&service),
            back,
        });
        Loan {
            service,
            _back: sender,
        }
    }

    #[cold]
    fn poll_back(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(lent) = &mut self.lent {
            let _closed: Result<Infallible, _> = ready!(Pin::new(&mut lent.back).poll(cx));
        }
        let alone = self
            .lent
            .take()
            .and_then(|lent| Arc::into_inner(lent.service));
        let service = alone.map(Mutex::into_inner);
        // What panicked when it was called is as it was left.
        self.here = service.map(|service| service.unwrap_or_else(PoisonError::into_inner));
        Poll::Ready(())
    }

    #[expect(
        clippy::expect_used,
        reason = "readiness waits for the service to be here, and it is lent by a call alone"
    )]
    #[inline]
    fn service(&mut self) -> &mut S {
        self.here
            .as_mut()
            .expect("a service that is lent is not ready")
    }
}

impl<S: Clone> Clone for Inner<S> {
    fn clone(&self) -> Self {
        let lent = || self.lent.as_ref().map(|lent| lock(&lent.service).clone());
        Self {
            here: self.here.clone().or_else(lent),
            lent: None,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Inner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.here {
            Some(service) => service.fmt(f),
            None => f.write_str("lent"),
        }
    }
}

// === impl Loan ===

impl<S> Loan<S> {
    /// Calls the service, and gives it back.
    pub(super) fn call<Request>(self, request: Request) -> S::Future
    where
        S: Service<Request>,
    {
        lock(&self.service).call(request)
    }
}

fn lock<S>(service: &Mutex<S>) -> MutexGuard<'_, S> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
