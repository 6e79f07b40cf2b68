//! Refusals for the address: silence, and a lower rate.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{
    Request, Response, StatusCode,
    header::{CONNECTION, RANGE},
};
use http_body_util::Empty;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};

use super::{
    limited::Limited,
    ms, secs,
    service::{Answer, Scripted},
};

fn left(limited: &Limited) -> (u32, Option<Duration>) {
    let snapshot = limited.limiter.snapshot();
    (snapshot.quota.requests().get(), snapshot.lowered_for)
}

/// Several that were in flight together count once.
#[tokio::test(start_paused = true)]
async fn a_423_silences_all_calls_for_a_second_and_spaces_them_for_ten_minutes() {
    let limited = Limited::before(Scripted::refusing(ms(500), 8, Answer::status(423)));
    assert_eq!(left(&limited), (50, None));
    limited.calls(8).await;
    let refused = Instant::now();
    assert_eq!(left(&limited), (50, Some(secs(600))));
    assert_eq!(limited.limiter.snapshot().silent_for, Some(ms(1_002)));
    limited.clone().calls(5).await;
    let arrivals = limited.service.arrivals();
    assert!(arrivals[8] - refused >= secs(1));
    let gaps = arrivals[8..].windows(2).map(|two| two[1] - two[0]);
    assert!(gaps.clone().all(|gap| gap >= ms(21)), "{arrivals:?}");
    sleep(secs(600)).await;
    limited.calls(1).await;
    assert_eq!(left(&limited), (50, None));
}

#[tokio::test(start_paused = true)]
async fn requests_close_their_sockets_until_three_seconds_after_a_416() {
    let service = service_fn(async |request: Request<Empty<Bytes>>| {
        let mut response = Response::new(Empty::<Bytes>::new());
        let closes = request
            .headers()
            .get(CONNECTION)
            .is_some_and(|value| value == "close");
        response.extensions_mut().insert(closes);
        if request.uri() == "/refused" {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
        }
        Ok::<_, Infallible>(response)
    });
    let limited = RequestLimitLayer::new(Limiter::new(Limits::default())).layer(service);
    let closes = async |path: &'static str| {
        let request = Request::get(path).body(Empty::new()).expect("a request");
        let response = limited.clone().oneshot(request).await.expect("a response");
        response.extensions().get::<bool>().copied()
    };
    assert_eq!(closes("/refused").await, Some(false));
    assert_eq!(closes("/").await, Some(true), "after the silence");
    sleep(ms(2_000)).await;
    assert_eq!(closes("/").await, Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_416_to_a_request_with_a_range_silences_for_a_second_and_lowers_nothing() {
    let limited = Limited::before(Scripted::refusing(ms(5), 40, Answer::status(416)));
    let sockets = || limited.limiter.snapshot().most_connections;
    for _ in 0..20 {
        let request = Request::get("/")
            .header(RANGE, "bytes=5-")
            .body(Empty::new());
        let call = limited.caller().oneshot(request.expect("a request"));
        call.await.expect("a response");
        let silent = limited.limiter.snapshot().silent_for;
        assert!(silent.is_some_and(|left| left >= secs(1)), "{silent:?}");
    }
    assert_eq!(sockets(), 60);
    limited.calls(1).await;
    assert_eq!(sockets(), 50);
}
