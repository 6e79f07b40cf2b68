//! Refusals for the address: silence, and a lower rate.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONNECTION};
use http_body_util::Empty;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds_limits::{Burst, Limiter, Limits, RequestLimitLayer, Rules};

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

/// A gateway that takes no burst: it accepts requests 20 ms apart and answers the others with 423.
/// It keeps its time in whole milliseconds.
fn burstless() -> Scripted {
    let mut next = None;
    Scripted::new(ms(30), move |_| {
        let now = Instant::now();
        match next {
            Some(next) if now < next => Answer::status(423),
            _ => {
                next = Some(now + ms(20));
                Answer::ok()
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn burstless_gateway_refuses_at_most_thirteen_calls() {
    let limited = Limited::before(burstless());
    let refused = |statuses: &[StatusCode]| statuses.iter().filter(|s| **s != 200).count();
    let first = limited.calls(60).await;
    assert!((1..=13).contains(&refused(&first)), "{}", refused(&first));
    let then = limited.calls(400).await;
    assert_eq!(refused(&then), 0);
    assert_eq!(left(&limited).0, 50, "spaced, and no slower");
}

#[tokio::test(start_paused = true)]
async fn burstless_gateway_refuses_nothing_with_burst_zero() {
    let rules = Rules::window().bucket(Burst::Of(0));
    let limited = Limited::new(Limits::default().rules(rules), burstless());
    let statuses = limited.calls(100).await;
    assert!(statuses.iter().all(|status| *status == 200));
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
async fn the_certificate_is_reached_and_never_exceeded() {
    let limited = Limited::before(Scripted::new(ms(150), |_| Answer::ok()));
    assert_eq!(limited.limiter.snapshot().certificate, 0);
    limited.calls(500).await;
    let certificate = limited.limiter.snapshot().certificate;
    assert!((45..=50).contains(&certificate), "{certificate}");
}
