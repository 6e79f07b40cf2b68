//! Bounds of a call: its deadline, its attempts' timeouts, and the budget.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use tokio::time::{Instant, timeout};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, GiveUp, Kind, Repeat, RetryBudget, RetryLayer, Sent};
use tower_tds_outcome::{Cause, Outcome, Resend};

use crate::probe::{Probe, get, status_of};

type Answer = Result<Response<Full<Bytes>>, Error>;

async fn send(layer: &RetryLayer, probe: &Probe, request: Request<Full<Bytes>>) -> Answer {
    let stack = layer.layer(ClassifyLayer::new().layer(probe.clone()));
    stack.oneshot(request).await
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn n(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

/// A budget that only calls pay into, each this part of a retry.
fn budget(per_call: f32) -> RetryBudget {
    RetryBudget::new(per_call, 0)
}

/// Answers each request after `latency`.
fn slow(latency: Duration) -> Probe {
    Probe::with(|_| Ok(status_of(200)), latency, usize::MAX)
}

#[tokio::test(start_paused = true)]
async fn default_deadline_ends_a_hanging_call_after_two_minutes() {
    let probe = slow(secs(100_000));
    let start = Instant::now();
    let error = send(&RetryLayer::new(), &probe, get("/"))
        .await
        .unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::Deadline));
    assert_eq!((start.elapsed(), probe.seen().len()), (secs(120), 1));
    let endless = RetryLayer::new().deadline(Duration::MAX);
    send(&endless, &probe, get("/")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn deadline_includes_readiness_and_keeps_the_earlier_failure() {
    let mut service = RetryLayer::new()
        .deadline(secs(7))
        .layer(Few(1, Arc::default()));
    let start = Instant::now();
    let call = timeout(secs(60), service.call(Request::new(String::new()))).await;
    let error = call.expect("it ends by itself").unwrap_err();
    assert_eq!(
        (error.kind(), error.gave_up()),
        (Kind::Unavailable, Some(GiveUp::Deadline))
    );
    assert_eq!((start.elapsed(), error.attempts()), (secs(7), 1));
    assert!(
        error
            .waited_for()
            .is_some_and(|waited| waited.contains("the service below to be ready"))
    );
}

#[tokio::test(start_paused = true)]
async fn replaced_tokens_cost_no_budget() {
    let layer = RetryLayer::new().budget(budget(0.0));
    let dead = Probe::new(|n| {
        let mut response = status_of(if n % 2 == 0 { 401 } else { 200 });
        *response.body_mut() = Full::from("invalid token");
        Ok(response)
    });
    let stack = layer.layer(renewed(dead.clone()));
    for _ in 0..20 {
        stack.clone().oneshot(get("/")).await.unwrap();
    }
    assert_eq!(dead.seen().len(), 40);
    // An outage of the gateway's identity server, which has nothing to do with the token.
    let down = Probe::new(|_| Ok(status_of(401).map(|_| "accessing keys failed: timeout".into())));
    let error = layer.layer(renewed(down.clone())).oneshot(get("/")).await;
    assert_eq!(error.unwrap_err().gave_up(), Some(GiveUp::Budget));
    assert_eq!(down.seen().len(), 1);
}

/// Is ready for a number of calls, and never after that.
#[derive(Clone)]
struct Few(u32, Arc<AtomicU32>);

impl Service<Request<String>> for Few {
    type Response = Response<()>;
    type Error = Error;
    type Future = std::future::Ready<Result<Response<()>, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.1.load(SeqCst) < self.0 {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        self.1.fetch_add(1, SeqCst);
        std::future::ready(Err(Error::new(Kind::Unavailable, "busy")))
    }
}

#[tokio::test(start_paused = true)]
async fn retry_without_classification_works_by_status() {
    for (status, attempts, kind) in [
        (503, 3, Kind::Unavailable),
        (423, 3, Kind::RateExceeded),
        (404, 1, Kind::NotFound),
    ] {
        let probe = Probe::always(status);
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new())
            .map_err(Error::from)
            .service(probe.clone());
        let error = stack
            .oneshot(get("https://api.example/v2"))
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (kind, attempts));
        assert_eq!(error.uri(), Some("https://api.example/v2"));
        assert_eq!(u32::try_from(probe.seen().len()), Ok(attempts));
    }
}

/// A service below a token layer that has a newer token for each refused one.
fn renewed(
    probe: Probe,
) -> impl Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>, Error = BoxError, Future: Send>
+ Clone {
    ClassifyLayer::new()
        .layer(probe)
        .map_err(|error: Error| match Outcome::of_error(&error) {
            Some(Outcome::TokenRefused) => {
                let mut replaced = Cause::new(Outcome::TokenRefused);
                replaced.resend = Some(Resend::Free);
                BoxError::from(replaced.over(error))
            }
            _ => error.into(),
        })
}

/// A service that refuses each token.
fn refusing() -> Probe {
    Probe::new(|_| {
        let mut response = status_of(401);
        *response.body_mut() = "invalid token".into();
        Ok(response)
    })
}

#[tokio::test(start_paused = true)]
async fn a_401_whose_token_was_replaced_is_sent_once_more_whatever_its_method() {
    let grpc = || {
        Probe::new(|_| {
            let mut response = status_of(200);
            let headers = response.headers_mut();
            headers.insert("content-type", "application/grpc".parse().unwrap());
            headers.insert("grpc-status", 16.into());
            Ok(response)
        })
    };
    for (probe, repeat, times) in [
        (refusing(), None, 2),
        (refusing(), Some(Repeat::Never), 1),
        // It may come from the handler, which has begun its work.
        (grpc(), None, 1),
        (grpc(), Some(Repeat::Allowed), 2),
    ] {
        let mut request = get("http://a/");
        *request.method_mut() = Method::POST;
        if let Some(repeat) = repeat {
            request.extensions_mut().insert(repeat);
        }
        let stack = RetryLayer::new().layer(renewed(probe.clone()));
        let error = stack.oneshot(request).await.unwrap_err();
        assert_eq!((probe.seen().len(), error.sent()), (times, Sent::Answered));
    }
    // Its body was read by the first attempt.
    let probe = refusing();
    let once = RetryLayer::new().replay(|_: &Full<Bytes>| None);
    let mut request = get("http://a/");
    *request.method_mut() = Method::POST;
    let error = once
        .layer(renewed(probe.clone()))
        .oneshot(request)
        .await
        .unwrap_err();
    assert_eq!(error.gave_up(), Some(GiveUp::NotReplayable));
    assert!(
        error.to_string().ends_with("the body cannot be sent twice"),
        "{error}"
    );
    assert_eq!(probe.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_begin_together_pay_for_as_many_retries_as_those_one_after_another() {
    let failed = async |at_once: usize| {
        let answers = AtomicUsize::new(0);
        // One of ten answers is a 503.
        let probe = Probe::new(move |_| {
            let is_bad = answers.fetch_add(1, SeqCst) % 10 == 9;
            Ok(status_of(if is_bad { 503 } else { 200 }))
        });
        let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(probe));
        let mut failed = 0;
        for _ in 0..2_000 / at_once {
            let calls = (0..at_once).map(|_| tokio::spawn(stack.clone().oneshot(get("http://a/"))));
            for call in calls.collect::<Vec<_>>() {
                failed += usize::from(call.await.unwrap().is_err());
            }
        }
        failed
    };
    let (together, in_turn) = (failed(2_000).await, failed(100).await);
    // A tenth of the retries fail as well, and the budget of the first seconds does not pay for all of their retries.
    assert!(together <= 8 && in_turn <= 2, "{together} and {in_turn}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_cannot_be_had_yet_costs_no_attempt() {
    let (layer, free) = (RetryLayer::new().deadline(secs(30)), Some(Resend::Free));
    for (layer, resend, comes_after, stop) in [
        (layer.clone(), free, secs(20), None),
        (layer.clone(), None, secs(20), Some(GiveUp::Attempts)),
        (layer.clone(), free, secs(99), Some(GiveUp::Deadline)),
        (layer.attempts(n(1)), free, secs(20), Some(GiveUp::Attempts)),
    ] {
        let start = Instant::now();
        let endpoint = tower::service_fn(move |_: Request<Full<Bytes>>| {
            let mut cause = Cause::new(Outcome::NoToken);
            (cause.resend, cause.wait) = (resend, Some(secs(1)));
            let is_there = start.elapsed() > comes_after;
            std::future::ready(is_there.then(|| Response::new(())).ok_or(cause))
        });
        let answer = layer.layer(endpoint).oneshot(get("http://a/")).await;
        assert_eq!(answer.is_ok(), stop.is_none(), "{answer:?}");
        let Err(error) = answer else { continue };
        let known = (error.kind(), error.sent(), error.gave_up());
        assert_eq!(known, (Kind::TokenUnavailable, Sent::Never, stop));
        let is_whole = (secs(25)..=secs(30)).contains(&start.elapsed());
        assert_eq!(is_whole, stop == Some(GiveUp::Deadline));
    }
}
