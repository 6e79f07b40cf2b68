//! The client under test, and its callers: patient, cancelling, aborted, late, unpolled, and with a
//! service that panics.

use std::{
    future::poll_fn,
    panic::resume_unwind,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use fastrand::Rng;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::{
    spawn,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_tds::{
    Client, Credentials, Limiter, RequestBody,
    layers::limits::{ConnectionLimitLayer, DeadlineAt, RequestLimitLayer},
};

use super::mix::{Mix, Stack};
use crate::load::{Body, Caller, boxed};

/// A client that callers in several runtimes share.
#[derive(Clone)]
pub(crate) struct Called {
    service: Caller,
    url: Arc<str>,
    /// Calls whose body was read to its end.
    answered: Arc<AtomicU64>,
}

// === impl Called ===

impl Called {
    /// Builds the client of this mix, and returns it with its limiter.
    pub(crate) fn new(mix: &Mix, url: &str) -> (Self, Limiter) {
        let (service, limiter) = match mix.stack {
            Stack::Client => client(mix, url),
            Stack::Bare => layers(mix),
        };
        let called = Self {
            service,
            url: format!("{url}/bus").into(),
            answered: Arc::default(),
        };
        (called, limiter)
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// Calls until `until`, one call after the other. Each has a task of its own, which may panic.
    pub(crate) async fn keep_calling(self, mut rng: Rng, cancels: u8, until: Instant) {
        while Instant::now() < until {
            let call = spawn(self.clone().make(rng.fork(), cancels));
            if rng.u8(..100) < 3 {
                sleep(millis(&mut rng, 300)).await;
                call.abort();
            }
            call.await.ok();
            sleep(millis(&mut rng, 20)).await;
        }
    }

    /// Makes one call in some way.
    async fn make(self, mut rng: Rng, cancels: u8) {
        if rng.u8(..100) < cancels {
            let patience = millis(&mut rng, 800);
            return timeout(patience, self.read(None)).await.unwrap_or(());
        }
        match rng.u8(..20) {
            0 => {
                let mut call = Box::pin(self.read(None));
                let polled = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
                sleep(millis(&mut rng, 1_500)).await;
                if polled.is_pending() && rng.bool() {
                    timeout(PATIENCE, call).await.ok();
                }
            }
            1 => {
                let response = timeout(PATIENCE, self.head(None)).await;
                if let Ok(Ok(response)) = response {
                    // The rest of the body is dropped.
                    timeout(PATIENCE, response.into_body().frame()).await.ok();
                }
            }
            2..5 => self.read(Some(millis(&mut rng, 1_000))).await,
            _ => timeout(PATIENCE, self.read(None)).await.unwrap_or(()),
        }
    }

    /// Calls, and reads the whole body.
    pub(crate) async fn read(&self, deadline: Option<Duration>) {
        let patience = deadline.unwrap_or(Duration::MAX);
        if let Ok(response) = self.head(deadline).await
            && let Ok(Ok(_)) = timeout(patience, response.into_body().collect()).await
        {
            self.answered.fetch_add(1, Relaxed);
        }
    }

    async fn head(&self, deadline: Option<Duration>) -> Result<Response<Body>, BoxError> {
        let mut request = Request::get(&*self.url).body(RequestBody::default())?;
        if let Some(after) = deadline {
            let ends = DeadlineAt::new((Instant::now() + after).into_std());
            request.extensions_mut().insert(ends);
        }
        self.service.clone().oneshot(request).await
    }
}

fn client(mix: &Mix, url: &str) -> (Caller, Limiter) {
    let credentials = Credentials::new("key", "s3cr3t").expect("they can be sent");
    let client = Client::builder(url, url, credentials)
        .limits(mix.limits())
        .response_timeout(PATIENCE);
    let client = client.build().expect("loopback is allowed");
    let limiter = client.limiter().clone();
    (boxed(client), limiter)
}

/// The bare layers. A service between limit and client panics sometimes: in its call, or in a poll.
fn layers(mix: &Mix) -> (Caller, Limiter) {
    let limiter = Limiter::new(mix.limits());
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(tcp);
    let http = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(2))
        .build::<_, RequestBody>(connector);
    let chance = Arc::new(Mutex::new(Rng::with_seed(mix.seed)));
    let between = service_fn(move |request: Request<RequestBody>| {
        let (in_call, in_poll) = {
            let mut rng = chance.lock().expect("no panic holds it");
            (rng.u8(..100) == 0, (rng.u8(..100) < 3).then(|| rng.u8(..3)))
        };
        // Panics without a message, which would fill the log.
        if in_call {
            resume_unwind(Box::new("call"));
        }
        let mut sent = http.request(request);
        let mut left = in_poll;
        poll_fn(move |cx| {
            if left.take_if(|left| *left == 0).is_some() {
                resume_unwind(Box::new("poll"));
            }
            left = left.map(|left| left - 1);
            Pin::new(&mut sent).poll(cx)
        })
    });
    let layer = RequestLimitLayer::new(limiter.clone());
    (boxed(layer.layer(between)), limiter)
}

fn millis(rng: &mut Rng, most: u64) -> Duration {
    Duration::from_millis(rng.u64(..most))
}

/// Longer than any answer without a hang or a cut.
const PATIENCE: Duration = Duration::from_secs(3);
