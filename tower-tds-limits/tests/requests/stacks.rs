//! The layer among those of other crates, as the service below sees it.

use std::{
    convert::Infallible,
    num::NonZeroU32,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::Empty;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, Service, ServiceExt, buffer::Buffer};
use tower_http::timeout::TimeoutLayer;
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimitLayer};

use crate::requests::{
    ms, secs,
    service::{Answer, Scripted, request},
};

#[tokio::test(start_paused = true)]
async fn timeout_of_tower_http_answers_with_a_body_that_holds_nothing() {
    let seen = Scripted::new(secs(1), |_| Answer::ok());
    let limiter = Limiter::new(Limits::default());
    let layer = RequestLimitLayer::new(limiter.clone());
    let timed = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, ms(100));
    let service = timed.layer(layer.layer(seen.clone()));
    let response = service.oneshot(request()).await;
    let response = response.expect("a response of the timeout");
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert!(response.body().is_end_stream());
    assert_eq!(seen.arrivals().len(), 1);
    sleep(secs(1)).await;
    assert_eq!(limiter.snapshot().in_flight, 0);
    drop(response);
}

/// A service that cannot be cloned, as a connection cannot.
struct Lone(Scripted);

impl Service<Request<Empty<Bytes>>> for Lone {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = <Scripted as Service<Request<Empty<Bytes>>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        self.0.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn quota_holds_above_a_buffer_of_any_size() {
    let ten = NonZeroU32::MIN.saturating_add(10 - 1);
    for bound in [1, 4, 64, 1_000] {
        let seen = Scripted::new(ms(20), |_| Answer::ok());
        let layer = RequestLimitLayer::new(Limiter::new(Limits::new(Quota::per_second(ten))));
        let service = layer.layer(Buffer::new(Lone(seen.clone()), bound));
        let begin = Instant::now();
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            calls.spawn(service.clone().oneshot(request()));
        }
        let answers = calls.join_all().await;
        assert!(answers.iter().all(Result::is_ok), "{bound}");
        let arrivals = seen.arrivals();
        assert_eq!(arrivals.len(), 100, "{bound}");
        for pair in arrivals.windows(11) {
            assert!(pair[10] - pair[0] > secs(1), "{bound}: {pair:?}");
        }
        assert!(begin.elapsed() < secs(13), "{bound}: {:?}", begin.elapsed());
    }
}
