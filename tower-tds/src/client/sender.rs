//! Sends requests through the layers, for a client and its clones.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response, Version};
use tokio::{sync::watch, time::Instant};
use tower::Layer as _;
use tower_oidc_cc::TokenSource;
use tower_service::Service;
use tower_tds_errors::{Error, Kind, RetryFuture};
use tower_tds_limits::{Limiter, PermitBody};
use tower_tds_outcome::{DeadlineAt, remove_connection_headers};

use crate::{
    client::{
        base::Base,
        body::{BodyBounds, ResponseBody},
        request::{ReplayBytes, RequestBody},
    },
    http::{
        http1::{AnyBody, Http},
        pool::Pool,
    },
    stack::TdsLayer,
};

/// The parts that the clones of a client share.
pub(crate) struct Sender {
    pub(crate) stack: Stack,
    /// Idle connections.
    pub(crate) pool: Arc<Pool<RequestBody>>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) base: Base,
    pub(crate) deadline: Option<Duration>,
    pub(crate) read_timeout: Duration,
    /// Whether the client was shut down. Each call has a receiver from its start to its response head, its
    /// error, or its drop.
    pub(crate) is_closed: watch::Sender<bool>,
    /// Time and text of the last failure, kept after a success. Locked only to copy it, and never
    /// across an `.await`.
    pub(crate) failure: Mutex<Option<(Instant, String)>>,
    pub(crate) tokens: TokenSource,
    pub(crate) limiter: Limiter,
}

/// Layers over an HTTP client of any type.
pub(crate) type Stack = Box<dyn Fn(Request<RequestBody>) -> Attempts + Send + Sync>;

type Attempts = RetryFuture<PermitBody<AnyBody>>;

/// Future of a call until its response head.
pub(crate) type CallFuture<R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send + Sync>>;

// === impl Sender ===

impl Sender {
    /// Begins a call: it counts, and its deadline runs, before its future is polled.
    pub(crate) fn send<R: From<Response<ResponseBody>> + 'static>(
        self: &Arc<Self>,
        mut request: Result<Request<RequestBody>, Error>,
        deadline: Option<Duration>,
    ) -> CallFuture<R> {
        // Before it reads whether the client is closed: a shutdown waits for this call, or refuses it.
        let call = self.is_closed.subscribe();
        let mut bounds = BodyBounds {
            idle: self.read_timeout,
            deadline: None,
        };
        let mut asked = None;
        if let Ok(whole) = &mut request {
            match self.complete(whole) {
                Ok(()) => {
                    bounds.deadline = self.bound(whole, deadline);
                    let secrets = self.tokens.secrets().clone();
                    asked = Some((whole.method().clone(), whole.uri().clone(), secrets));
                }
                Err(error) => request = Err(error),
            }
        }
        let attempts = request.map(&self.stack);
        let sender = Arc::clone(self);
        Box::pin(async move {
            let _call = call;
            let ended = match attempts {
                Ok(attempts) => attempts.await,
                Err(error) => Err(error),
            };
            let response = ended.map_err(|error| sender.failed(error))?;
            Ok(ResponseBody::bounded(response, bounds, asked).into())
        })
    }

    /// Completes a request: its URI and its version.
    fn complete(&self, request: &mut Request<RequestBody>) -> Result<(), Error> {
        let target = mem::take(request.uri_mut());
        *request.uri_mut() = self.base.resolve(target)?;
        if *self.is_closed.borrow() {
            let closed = Error::new(Kind::InvalidRequest, "the client was shut down");
            let closed = closed.with_request(request.method().clone(), request.uri());
            return Err(closed.with_advice(SHUT_DOWN));
        }
        // Reverse proxies over this client may pass on a request of another version.
        *request.version_mut() = Version::default();
        remove_connection_headers(request.headers_mut());
        Ok(())
    }

    /// Puts the deadline of the response head on a request. Returns the deadline of the response
    /// body.
    fn bound(&self, request: &mut Request<RequestBody>, own: Option<Duration>) -> Option<Instant> {
        let after = self.deadline.into_iter().chain(own).min()?;
        let body = Instant::now().checked_add(after.min(FOREVER))?;
        let outer = request.extensions().get::<DeadlineAt>();
        let head = outer.map_or(body, |outer| body.min(Instant::from_std(outer.at)));
        let mut bound = DeadlineAt::new(head.into_std());
        bound.covers_body = head == body;
        request.extensions_mut().insert(bound);
        Some(body)
    }

    /// Records a failure, unless it is a mistake of the caller. Adds the setting that solves the
    /// problem.
    #[cold]
    fn failed(&self, mut error: Error) -> Error {
        if error.is_unknown_issuer() {
            error = error.with_advice(ADD_ROOT);
        }
        let own = [Kind::NotFound, Kind::Rejected, Kind::InvalidRequest];
        if !own.contains(&error.kind()) {
            let failure = (Instant::now(), error.to_string());
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
        error
    }

    /// Returns the age and the text of the last failure, for ten minutes.
    pub(crate) fn last_failure(&self) -> Option<(Duration, String)> {
        let failure = self.failure.lock();
        let failure = failure.unwrap_or_else(PoisonError::into_inner).clone();
        let failure = failure.map(|(at, line)| (at.elapsed(), line));
        failure.filter(|(ago, _)| *ago < SHOWN_FOR)
    }
}

/// Puts the layers around an http client.
pub(crate) fn stack(layer: &TdsLayer<ReplayBytes>, http: Http<RequestBody>) -> Stack {
    let stack = layer.layer(http);
    Box::new(move |request| (&stack).call(request))
}

/// A century: within the range of the clock, so that it still replaces the retry layer's default.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

const SHUT_DOWN: &str = "make all calls before `shutdown`, or build another client";

const ADD_ROOT: &str =
    "give its CA to Builder::root_certificate, or put it into the configuration for Builder::tls";

/// How long a failure is shown: as long as the limits remember a refusal.
const SHOWN_FOR: Duration = Duration::from_secs(600);
