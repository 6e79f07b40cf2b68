//! Status, hint and `Sent` of an earlier attempt are kept in the final error.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};
use tower_tds_errors::{Attempt, ClassifyLayer, DeadlineAt, Error, GiveUp, Kind, RetryLayer, Sent};
use tower_tds_outcome::{Cause, Outcome, Resend};

use crate::probe::{Probe, get, status_of};

/// A deadline of this length from now.
fn within(wait: Duration) -> DeadlineAt {
    DeadlineAt::new((Instant::now() + wait).into_std())
}

/// A body that never yields.
pub(crate) struct Hangs;

impl Body for Hangs {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

/// Answers with a status, a hint and a body that hangs. Returns the count of requests.
fn hanging(
    status: u16,
    hint: &'static str,
) -> (
    impl Clone + Service<Request<String>, Response = Response<Hangs>, Error = BoxError, Future: Send>,
    Arc<AtomicUsize>,
) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let service = tower::service_fn(move |_: Request<String>| {
        count.fetch_add(1, SeqCst);
        let response = Response::builder().status(status);
        let response = response.header("retry-after", hint);
        std::future::ready(Ok::<_, BoxError>(response.body(Hangs).unwrap()))
    });
    (service, seen)
}

/// End of an attempt.
#[derive(Clone, Copy)]
enum End {
    Busy,
    Refused,
    Reset,
    /// A limit below gives no permit before the deadline.
    NoPermit,
    Hangs,
}

/// Ends each attempt as listed.
async fn ends(request: Request<String>, attempts: &[End]) -> Result<Response<String>, BoxError> {
    let number = usize::try_from(Attempt::of(request.extensions())).unwrap();
    match attempts[number - 1] {
        End::Busy => {
            let busy = Response::builder().status(503).header("retry-after", "3");
            Ok(busy.body(String::new()).unwrap())
        }
        End::Refused => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
        End::Reset => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        End::NoPermit => {
            let mut cause = Cause::new(Outcome::NoPermit);
            cause.resend = Some(Resend::TooLate);
            cause.waited_for = Some("the rate limit".into());
            Err(cause.into())
        }
        End::Hangs => std::future::pending().await,
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test(start_paused = true)]
async fn hanging_error_body_keeps_its_status_under_any_deadline() {
    for bound in [50, 200, 500, 800, 1_500, 5_000] {
        for (status, hint, kind, sends) in [
            (404, "", Kind::NotFound, 1..=1),
            (401, "", Kind::InvalidToken, 1..=2),
            (423, "", Kind::RateExceeded, 1..=3),
            (429, "3600", Kind::QuotaExhausted, 1..=1),
            (429, "", Kind::Throttled, 1..=3),
            (503, "", Kind::Unavailable, 1..=3),
        ] {
            let layers = [
                RetryLayer::new().deadline(ms(60_000)),
                RetryLayer::new().deadline(ms(bound)),
            ];
            for (n, layer) in layers.into_iter().enumerate() {
                let (service, seen) = hanging(status, hint);
                let stack = layer.layer(ClassifyLayer::new().layer(service));
                let start = Instant::now();
                let error = stack
                    .oneshot(Request::new(String::new()))
                    .await
                    .map(drop)
                    .unwrap_err();
                assert_eq!(error.kind(), kind, "{status} {bound}: {error}");
                assert_eq!(error.status().map(|status| status.as_u16()), Some(status));
                assert!(error.body().is_empty());
                assert!(sends.contains(&seen.load(SeqCst)), "{status} {bound}");
                if n == 1 {
                    // A layer above with a timer at the deadline would get it as well.
                    assert!(start.elapsed() < ms(bound), "{status} {bound}");
                    // Nothing follows an answer that is read until then.
                    assert!(bound >= 1_000 || seen.load(SeqCst) == 1, "{status} {bound}");
                } else if error.is_retryable() && hint.is_empty() && status != 401 {
                    assert_eq!(seen.load(SeqCst), 3, "{status} {bound}");
                }
            }
        }
    }
}

/// A response explains more than an attempt after it that is lost, or that no limit permits.
#[tokio::test(start_paused = true)]
async fn deadline_error_keeps_the_last_response_and_the_wait() {
    use End::{Busy, Hangs, NoPermit, Reset};
    let (lost, unsent) = (
        (Sent::Unknown, Some("a response")),
        (Sent::Answered, Some("the rate limit")),
    );
    for (attempts, made, last) in [
        (&[Busy, Hangs][..], 2, lost),
        (&[Busy, Reset, Hangs], 3, lost),
        (&[Busy, NoPermit], 1, unsent),
    ] {
        let service = tower::service_fn(move |request| ends(request, attempts));
        let layer = RetryLayer::new().deadline(ms(10_000));
        let inner = ClassifyLayer::new().layer(service);
        let start = Instant::now();
        let errors = tokio::join!(
            layer
                .layer(inner.clone())
                .oneshot(Request::new(String::new())),
            layer
                .layer(RetryLayer::new().layer(inner))
                .oneshot(Request::new(String::new()))
        );
        assert!(start.elapsed() == ms(10_000) || last == unsent);
        for error in [errors.0.unwrap_err(), errors.1.unwrap_err()] {
            assert_eq!((error.kind(), error.attempts()), (Kind::Unavailable, made));
            assert_eq!(error.status().map(|status| status.as_u16()), Some(503));
            assert_eq!(error.retry_after(), Some(ms(3_000)));
            assert_eq!(error.gave_up(), Some(GiveUp::Deadline));
            assert_eq!((error.sent(), error.waited_for()), last);
            assert!(error.is_timeout(), "{error:?}");
            let waited = format!("waiting for {}", last.1.unwrap());
            assert!(error.to_string().contains(&waited), "{error}");
        }
    }
}

/// The error of two nested retry layers, with a layer between that may wrap the inner error.
async fn nested(method: Method, kind: Option<Kind>) -> (Error, usize) {
    let probe = Probe::always(503);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .map_err(move |error: Error| match kind {
            Some(kind) => Error::new(kind, io::Error::other(error)),
            None => error,
        })
        .layer(RetryLayer::new())
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    let mut request = get("https://api.example/v2");
    *request.method_mut() = method;
    let error = stack.oneshot(request).await.unwrap_err();
    (error, probe.seen().len())
}

#[tokio::test(start_paused = true)]
async fn nested_retries_send_three_attempts_whatever_a_layer_between_says() {
    let changed = [Kind::Unavailable, Kind::Connect, Kind::LimitTimeout].map(Some);
    for kind in changed.into_iter().chain([None]) {
        let (error, sent) = nested(Method::GET, kind).await;
        assert_eq!((sent, error.attempts()), (3, 3), "{kind:?}");
        let expected = (kind.unwrap_or(Kind::Unavailable), Sent::Answered);
        assert_eq!((error.kind(), error.sent()), expected);
        assert_eq!(error.status().map(|status| status.as_u16()), Some(503));
        let (error, sent) = nested(Method::POST, kind).await;
        assert_eq!((sent, error.gave_up()), (1, Some(GiveUp::NotIdempotent)));
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_starts_at_the_call_not_the_first_poll() {
    let probe = Probe::with(|_| Ok(status_of(200)), ms(100), usize::MAX);
    for by_request in [true, false] {
        let mut layer = RetryLayer::new();
        let mut request = get("/");
        if by_request {
            request.extensions_mut().insert(within(ms(1_000)));
        } else {
            layer = layer.deadline(ms(1_000));
        }
        let mut service = layer.layer(ClassifyLayer::new().layer(probe.clone()));
        let call = service.ready().await.unwrap().call(request);
        tokio::time::sleep(ms(1_500)).await;
        let error = call.await.unwrap_err();
        assert_eq!((error.sent(), error.attempts()), (Sent::Never, 0));
        assert!(
            probe.seen().is_empty(),
            "nothing is sent after the deadline"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_earlier_deadline_holds_and_the_default_is_for_calls_without_one() {
    let service = tower::service_fn(async |_: Request<String>| {
        tokio::time::sleep(ms(150_000)).await;
        Ok::<_, BoxError>(Response::new(String::new()))
    });
    let default = RetryLayer::new();
    let own = |n| default.clone().deadline(ms(n));
    for (layer, asked, lasts) in [
        (default.clone(), 300_000, 150_000),
        (own(200_000), 100_000, 100_000),
        (own(100_000), 200_000, 100_000),
    ] {
        let mut request = Request::new(String::new());
        request.extensions_mut().insert(within(ms(asked)));
        let start = Instant::now();
        let stack = layer.layer(ClassifyLayer::new().layer(service));
        let is_there = stack.oneshot(request).await.is_ok();
        assert_eq!((is_there, start.elapsed()), (asked == 300_000, ms(lasts)));
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_keeps_what_the_deadline_covers() {
    for covers in [false, true] {
        let service = tower::service_fn(move |request: Request<String>| {
            let deadline = request.extensions().get::<DeadlineAt>().unwrap();
            assert_eq!(deadline.covers_body, covers);
            let busy = Attempt::of(request.extensions()) < 3;
            let response = Response::builder().status(if busy { 503 } else { 200 });
            std::future::ready(Ok::<_, BoxError>(response.body(String::new()).unwrap()))
        });
        let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(service));
        let mut deadline = within(ms(60_000));
        deadline.covers_body = covers;
        let mut request = Request::new(String::new());
        request.extensions_mut().insert(deadline);
        assert!(stack.oneshot(request).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn final_error_keeps_whether_an_earlier_attempt_was_sent() {
    use End::{Busy, Refused, Reset};
    for (first, sent) in [
        (Reset, Sent::Unknown),
        (Busy, Sent::Answered),
        (Refused, Sent::Never),
    ] {
        let attempts: &[_] = Box::leak(Box::new([first, Refused, Refused]));
        let service = tower::service_fn(move |request| ends(request, attempts));
        let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(service));
        let put = || Request::put("http://host/").body(String::new()).unwrap();
        let error = stack.oneshot(put()).await.unwrap_err();
        assert_eq!((error.kind(), error.sent()), (Kind::Connect, sent));
        assert_eq!(error.attempts(), 3);
    }
}
