//! The bounds that end a call early: its deadline, its response timeout, and the bounds of its
//! wait.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_tds_limits::{DeadlineAt, Error, Limiter, Limits, Quota, RequestLimitLayer, WaitCause};
use tower_tds_outcome::{HandOver, Handed};

use crate::requests::{
    limited::{Limited, unsent},
    ms, secs,
    service::{Answer, Scripted, request},
};

pub(crate) fn request_until(deadline: Instant) -> Request<Empty<Bytes>> {
    let mut request = request();
    request
        .extensions_mut()
        .insert(DeadlineAt::new(deadline.into_std()));
    request
}

fn layer(limiter: &Limiter) -> RequestLimitLayer {
    RequestLimitLayer::new(limiter.clone())
}

/// The error of a call that ends exactly at its deadline of two seconds.
async fn at_its_deadline<T>(
    call: impl AsyncFnOnce(Request<Empty<Bytes>>) -> Result<T, Error>,
) -> Error {
    let begin = Instant::now();
    let error = unsent(call(request_until(begin + secs(2))).await).expect("a deadline");
    assert_eq!(begin.elapsed(), secs(2));
    assert!(error.is_timeout());
    error
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_each_wait_unsent_and_with_its_cause() {
    let quick = || Scripted::new(ms(20), |_| Answer::ok());
    // The inner service is not ready.
    let limited = Limited::before(quick());
    let full = ConcurrencyLimit::new(limited.service.clone(), 0);
    let full = layer(&limited.limiter).layer(full);
    let error = at_its_deadline(async |request| full.oneshot(request).await).await;
    assert_eq!(error.cause(), Some(WaitCause::Readiness));

    // Here the quota is used up.
    let one_a_minute = Limits::new(Quota::new(NonZeroU32::MIN, secs(60)).expect("a minute"));
    let limited = Limited::new(one_a_minute, quick());
    limited.calls(1).await;
    let service = layer(&limited.limiter).layer(limited.service.clone());
    let error = at_its_deadline(async |request| service.oneshot(request).await).await;
    assert!(
        error
            .to_string()
            .contains("waiting for the rate limit; request not sent"),
        "{error}"
    );
    assert_eq!(limited.service.arrivals().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_after_sending_is_about_the_response() {
    let limited = Limited::before(Scripted::new(secs(5), |_| Answer::ok()));
    let service = layer(&limited.limiter).layer(limited.service.clone());
    let error = at_its_deadline(async |request| service.oneshot(request).await).await;
    assert_eq!(error.cause(), Some(WaitCause::Response));
    assert_eq!(limited.service.arrivals().len(), 1);
    sleep(secs(5)).await;
    // The response, which came a second before, has proven the count.
    assert_eq!(limited.limiter.snapshot().live, 0);
}

/// Holds the request for a time, as a client does that connects, and never answers.
async fn connects(
    request: Request<Empty<Bytes>>,
    connects_for: Duration,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    assert!(HandOver::of(request.extensions()).mark(Handed::Held));
    sleep(connects_for).await;
    assert!(HandOver::of(request.extensions()).mark(Handed::Taken));
    pending().await
}

#[tokio::test(start_paused = true)]
async fn a_deadline_while_the_client_connects_sends_nothing() {
    let limiter = Limiter::new(Limits::default());
    let service = layer(&limiter).layer(service_fn(|request| connects(request, secs(9))));
    let error = at_its_deadline(async |request| service.oneshot(request).await).await;
    assert_eq!(error.cause(), Some(WaitCause::Connection));
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.live), (0, 0));
}

/// Sends at its second poll, as a client whose connection was made meanwhile.
#[tokio::test(start_paused = true)]
async fn call_polled_after_its_deadline_is_not_sent() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let connects = service_fn(move |request: Request<Empty<Bytes>>| {
        let (mut polls, count) = (0, Arc::clone(&count));
        poll_fn(move |_| {
            polls += 1;
            if polls == 1 {
                assert!(HandOver::of(request.extensions()).mark(Handed::Held));
                return Poll::Pending;
            }
            if HandOver::of(request.extensions()).mark(Handed::Taken) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
        })
    });
    let service = layer(&Limiter::new(Limits::default())).layer(connects);
    let call = service.oneshot(request_until(Instant::now() + secs(1)));
    let mut call = task::spawn(call);
    assert_pending!(call.poll());
    // The call is not polled while its task has other work, or the machine sleeps.
    advance(secs(3)).await;
    let error = unsent(assert_ready!(call.poll())).expect("its deadline");
    assert!(error.is_deadline(), "{error}");
    assert!(error.to_string().ends_with("request not sent"), "{error}");
    assert_eq!(sent.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn call_made_at_its_deadline_is_not_sent() {
    let limited = Limited::before(Scripted::new(ms(20), |_| Answer::ok()));
    let service = layer(&limited.limiter).layer(limited.service.clone());
    let call = service.oneshot(request_until(Instant::now()));
    let error = unsent(call.await).expect("it is too late");
    // It has not waited for a token, so the error must not send its reader to the token endpoint.
    assert!(error.is_timeout() && error.cause() == Some(WaitCause::Rate));
    assert_eq!(limited.service.arrivals(), []);
}

#[tokio::test(start_paused = true)]
async fn response_timeout_starts_when_the_request_is_sent() {
    for connects_for in [ms(0), ms(400), secs(3), ms(3_700)] {
        let limiter = Limiter::new(Limits::default());
        let layer = RequestLimitLayer::new(limiter).response_timeout(secs(1));
        let service = layer.layer(service_fn(move |request| connects(request, connects_for)));
        let begin = Instant::now();
        let error =
            unsent(service.oneshot(request_until(begin + secs(60))).await).expect("no response");
        assert_eq!(begin.elapsed(), connects_for + secs(1));
        assert!(error.is_timeout());
        assert_eq!(error.cause(), Some(WaitCause::Response));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_max_waiting_are_rejected_unsent() {
    let limited = Limited::new(
        Limits::default().in_flight(NonZeroU32::MIN),
        Scripted::new(secs(1), |_| Answer::ok()),
    );
    let layer = RequestLimitLayer::new(limited.limiter.clone()).max_waiting(2);
    let service = layer.layer(limited.service.clone());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..5 {
        calls.spawn(service.clone().oneshot(request()));
    }
    let outcomes = calls.join_all().await;
    let errors: Vec<_> = outcomes.into_iter().filter_map(unsent).collect();
    assert_eq!(errors.len(), 2, "one is sent, and two wait");
    for error in errors {
        assert!(error.is_rejected());
        assert_eq!(error.cause(), Some(WaitCause::InFlight));
    }
    assert_eq!(limited.service.arrivals().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn waits_for_readiness_count_toward_max_waiting() {
    let limited = Limited::before(Scripted::new(ms(20), |_| Answer::ok()));
    let full = ConcurrencyLimit::new(limited.service.clone(), 0);
    let layer = RequestLimitLayer::new(limited.limiter.clone()).max_waiting(1);
    let waits = tokio::spawn(layer.layer(full.clone()).oneshot(request()));
    tokio::task::yield_now().await;
    let error = unsent(layer.layer(full).oneshot(request()).await).expect("one waits");
    assert!(error.is_rejected());
    assert_eq!(error.cause(), Some(WaitCause::Readiness));
    drop(timeout(ms(1), waits).await);
}

#[tokio::test(start_paused = true)]
async fn response_at_the_deadline_is_returned() {
    let limited = Limited::before(Scripted::new(secs(2), |_| Answer::ok()));
    let service = layer(&limited.limiter).layer(limited.service.clone());
    let response = service.oneshot(request_until(Instant::now() + secs(2)));
    response.await.expect("it has come");
}
