//! Layers in an order that compiles, and is wrong all the same.
#![cfg(debug_assertions)]
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::{
    convert::Infallible,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_tds::{
    Limiter, Limits,
    layers::{
        ReadError,
        errors::{ClassifyLayer, RetryLayer},
        limits::RequestLimitLayer,
    },
};

/// One call through limits that are outside of the retry layer, answered by these statuses.
async fn call(answers: &'static [StatusCode]) {
    let attempt = Arc::<AtomicUsize>::default();
    let http = service_fn(move |_: Request<Full<Bytes>>| {
        let attempt = attempt.fetch_add(1, Ordering::Relaxed);
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = *answers.get(attempt).expect("no more attempts");
        ready(Ok::<_, Infallible>(response))
    });
    let stack = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(Limiter::new(Limits::default())).feedback(ReadError))
        .layer(RetryLayer::new())
        .layer(ClassifyLayer::new())
        .service(http);
    let request = Request::get("http://data.example/").body(Full::default());
    let called = stack.oneshot(request.expect("a request")).await;
    called.map(drop).ok();
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_that_succeeds_shows_nothing() {
    call(&[StatusCode::OK]).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "they have to be inside of it")]
async fn limits_outside_of_retry_are_found_when_an_attempt_was_the_second() {
    call(&[StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK]).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "they have to be inside of it")]
async fn limits_outside_of_retry_are_found_at_the_first_failure() {
    call(&[StatusCode::NOT_FOUND]).await;
}
