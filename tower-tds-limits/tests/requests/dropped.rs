//! Dropped calls, as the service sees them.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::Empty;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
use tower_tds_outcome::{Cause, HandOver, Handed, Outcome};

use crate::requests::{
    bounds::request_until,
    limited::Limited,
    ms, secs,
    service::{Answer, Scripted, request},
};

/// Two hundred callers make calls for a minute. Every `n`-th call is dropped 100 ms after its request
/// was sent. Returns how many requests a second the service saw.
async fn rate<S>(service: S, seen: &Scripted, hang_up: Option<usize>) -> f64
where
    S: Service<Request<Empty<Bytes>>, Error: Send> + Clone + Send + 'static,
    S::Future: Future + Send,
    S::Response: Send,
{
    let mut callers = JoinSet::new();
    for caller in 0..200 {
        let service = service.clone();
        callers.spawn(async move {
            for call in caller.. {
                let mut service = service.clone();
                let Ok(service) = service.ready().await else {
                    return;
                };
                let (mut request, sent) = (request(), Arc::new(Notify::new()));
                request.extensions_mut().insert(Arc::clone(&sent));
                let response = service.call(request);
                if hang_up.is_some_and(|n| call % n == 0) {
                    let cancelled = async {
                        sent.notified().await;
                        sleep(ms(100)).await;
                    };
                    tokio::select! {
                        response = response => drop(response),
                        () = cancelled => {}
                    }
                } else {
                    drop(response.await);
                }
            }
        });
    }
    sleep(Duration::from_secs(60)).await;
    callers.abort_all();
    f64::from(u32::try_from(seen.arrivals().len()).expect("few calls")) / 60.0
}

#[tokio::test(start_paused = true)]
async fn calls_keep_the_rate_if_half_of_them_are_dropped() {
    let service = || Scripted::new(ms(300), |_| Answer::ok());
    let limited = |seen: &Scripted| {
        let noticed = seen.clone().map_request(|request: Request<_>| {
            if let Some(sent) = request.extensions().get::<Arc<Notify>>() {
                sent.notify_one();
            }
            request
        });
        RequestLimitLayer::new(Limiter::new(Limits::default())).layer(noticed)
    };
    let seen = service();
    let patient = rate(limited(&seen), &seen, None).await;
    let seen = service();
    let dropped = rate(limited(&seen), &seen, Some(2)).await;
    assert!(dropped > 0.97 * patient, "{dropped} of {patient}");
}

#[tokio::test(start_paused = true)]
async fn unpolled_call_is_dropped_unsent() {
    let limited = Limited::before(Scripted::new(ms(300), |_| Answer::ok()));
    drop(limited.caller().call(request()));
    sleep(ms(1)).await;
    let snapshot = limited.limiter.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.live), (0, 0));
    assert_eq!(limited.service.arrivals(), []);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_without_response_ends_after_ten_seconds() {
    let limited = Limited::before(Scripted::new(secs(100_000), |_| Answer::ok()));
    drop(timeout(ms(100), limited.caller().oneshot(request())).await);
    sleep(secs(9)).await;
    assert_eq!(limited.limiter.snapshot().in_flight, 1);
    sleep(secs(2)).await;
    assert_eq!(limited.limiter.snapshot().in_flight, 0);
}

/// A body that never ends.
#[derive(Debug)]
struct Endless(Arc<AtomicUsize>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.fetch_add(1, SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 1024])))))
    }
}

#[tokio::test(start_paused = true)]
async fn endless_body_of_a_dropped_call_ends_at_256_kib() {
    let limiter = Limiter::new(Limits::default());
    let frames = Arc::new(AtomicUsize::new(0));
    let endless = service_fn({
        let frames = Arc::clone(&frames);
        move |request: Request<Empty<Bytes>>| {
            // The request is sent.
            drop(request);
            let body = Endless(Arc::clone(&frames));
            async move {
                sleep(ms(50)).await;
                Ok::<_, Infallible>(Response::new(body))
            }
        }
    });
    let service = RequestLimitLayer::new(limiter.clone()).layer(endless);
    drop(timeout(ms(10), service.oneshot(request())).await);
    assert_eq!(limiter.snapshot().in_flight, 1);
    sleep(ms(100)).await;
    assert_eq!(limiter.snapshot().in_flight, 0);
    // 256 KiB, and one frame more.
    assert_eq!(frames.load(SeqCst), 257);
}

#[test]
fn call_dropped_outside_a_runtime_ends_at_once() {
    let limiter = Limiter::new(Limits::default());
    let pending = service_fn(|_: Request<Empty<Bytes>>| {
        std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
    });
    let mut service = RequestLimitLayer::new(limiter.clone()).layer(pending);
    let mut cx = Context::from_waker(Waker::noop());
    let mut call = service.call(request());
    assert!(Pin::new(&mut call).poll(&mut cx).is_pending());
    drop(call);
    assert_eq!(limiter.snapshot().in_flight, 0);
}

/// The connection of a request is closed before anything is written, as that of an idle one may be.
#[tokio::test(start_paused = true)]
async fn dropped_call_that_comes_back_unwritten_is_not_sent_again() {
    let limiter = Limiter::new(Limits::default());
    let client = service_fn(async |request: Request<Empty<Bytes>>| {
        let mut hand_over = HandOver::of(request.extensions());
        assert!(hand_over.mark(Handed::Held) && hand_over.mark(Handed::Taken));
        sleep(ms(50)).await;
        assert!(!hand_over.mark(Handed::Held), "its caller has gone");
        Err::<Response<Empty<Bytes>>, BoxError>(Cause::new(Outcome::Unsent).into())
    });
    let service = RequestLimitLayer::new(limiter.clone()).layer(client);
    drop(
        timeout(
            ms(10),
            service.oneshot(request_until(Instant::now() + secs(60))),
        )
        .await,
    );
    assert_eq!(limiter.snapshot().in_flight, 1);
    sleep(ms(50)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.live), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn panicked_call_returns_its_place() {
    let limiter = Limiter::new(Limits::default());
    let panics = service_fn(|_: Request<Empty<Bytes>>| {
        std::future::poll_fn(|_| -> Poll<Result<Response<Empty<Bytes>>, Infallible>> {
            panic!("at its first poll")
        })
    });
    let service = RequestLimitLayer::new(limiter.clone()).layer(panics);
    let call = tokio::spawn(service.oneshot(request())).await;
    assert!(call.expect_err("it panics").is_panic());
    sleep(ms(1)).await;
    assert_eq!(limiter.snapshot().in_flight, 0);
}
