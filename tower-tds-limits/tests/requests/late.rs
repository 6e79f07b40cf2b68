//! Services that were readied and kept: what their calls come to when their leases are over.

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    server, service,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceExt};
use tower_tds_limits::{
    Error, LimitError, Limiter, Limits, PermitBody, Quota, RequestLimit, RequestLimitLayer, Rules,
    Snapshot, WaitCause,
};

use crate::{
    limited::{Limited, unsent},
    ms, secs,
    service::{Answer, Scripted, request},
};

/// So many services, each readied.
async fn readied(limited: &Limited, many: usize) -> Vec<RequestLimit<Scripted>> {
    let mut readied = Vec::new();
    for _ in 0..many {
        let mut service = limited.caller();
        service.ready().await.expect("its turn");
        readied.push(service);
    }
    readied
}

fn live(limited: &Limited) -> (u32, u64) {
    let Snapshot {
        in_flight, live, ..
    } = limited.limiter.snapshot();
    (in_flight, live)
}

#[tokio::test(start_paused = true)]
async fn whoever_is_told_that_nothing_was_sent_was_not_called() {
    let limits = Limits::default().max_wait(ms(600));
    // It counts a request in `call`, before its future is polled.
    let limited = Limited::new(limits, Scripted::new(ms(20), |_| Answer::ok()));
    let mut kept = readied(&limited, 45).await;
    sleep(ms(100)).await;
    let calls: JoinSet<_> = kept.iter_mut().map(|kept| kept.call(request())).collect();
    let answers = calls.join_all().await;
    let (told, answered): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_err);
    assert!(!told.is_empty());
    assert!(told.into_iter().all(|told| unsent(told).is_some()));
    assert_eq!(limited.service.arrivals().len(), answered.len());
}

#[tokio::test(start_paused = true)]
async fn one_first_in_line_does_not_wait_behind_one_that_waits_for_a_place() {
    let two = NonZeroU32::MIN.saturating_add(1);
    // Downloads, say, which may depend on the token that is asked for first.
    let service = Scripted::new(secs(600), |_| Answer::ok());
    let limited = Limited::new(Limits::default().in_flight(two), service);
    let begun = limited.clone();
    let mut calls = JoinSet::new();
    calls.spawn(async move { begun.calls(1).await });
    sleep(ms(1)).await;
    let mut kept = readied(&limited, 1).await;
    sleep(ms(60)).await;
    let begun = limited.clone();
    calls.spawn(async move { begun.calls(1).await });
    sleep(ms(60)).await;
    let mut late = task::spawn(kept[0].call(request()));
    assert_pending!(late.poll());
    assert_eq!(limited.service.arrivals().len(), 2);
    let first = RequestLimitLayer::new(limited.limiter.first_in_line());
    let mut first = task::spawn(first.layer(limited.service.clone()).oneshot(request()));
    assert_pending!(first.poll());
    assert_eq!(limited.service.arrivals().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn thirty_that_are_kept_called_and_dropped_leave_nothing_behind() {
    for polled in [false, true] {
        let limited = Limited::before(Scripted::new(ms(80), |_| Answer::ok()));
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let caller = limited.caller();
            tasks.spawn(async move {
                loop {
                    drop(caller.clone().oneshot(request()).await);
                }
            });
        }
        sleep(secs(3)).await;
        let mut kept = readied(&limited, 30).await;
        sleep(ms(100)).await;
        let before = limited.service.arrivals().len();
        let mut calls = Vec::new();
        for service in &mut kept {
            let mut call = task::spawn(service.call(request()));
            if polled {
                drop(call.poll());
            }
            calls.push(call);
        }
        let at_once = limited.service.arrivals().len() - before;
        assert!(at_once <= 10, "{at_once}");
        drop(calls);
        let begin = Instant::now();
        sleep(secs(3)).await;
        let arrivals = limited.service.arrivals();
        for second in 1..3 {
            let second = begin + secs(second)..begin + secs(second + 1);
            let came = arrivals.iter().filter(|at| second.contains(*at)).count();
            assert!(came >= 40 - at_once, "{came}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_readied_service_that_is_kept_holds_nothing_after_its_lease() {
    let limited = Limited::before(Scripted::new(ms(20), |_| Answer::ok()));
    let kept = readied(&limited, 9).await;
    assert_eq!(live(&limited), (9, 9));
    sleep(ms(60)).await;
    assert_eq!(live(&limited), (0, 0));
    drop(kept);
    assert_eq!(live(&limited), (0, 0));
}

/// The window says when it opens by itself, which is later.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_time_that_is_known_passes_when_a_kept_permit_falls_back() {
    let two = NonZeroU32::MIN.saturating_add(1);
    let limits = Limits::new(Quota::per_minute(two)).rules(Rules::window());
    let limited = Limited::new(limits, Scripted::new(ms(20), |_| Answer::ok()));
    limited.calls(1).await;
    let kept = readied(&limited, 1).await;
    let begin = Instant::now();
    limited.calls(1).await;
    assert!(begin.elapsed() < secs(1), "{:?}", begin.elapsed());
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn who_was_readied_before_a_429_sends_nothing_into_its_pause() {
    for max_wait in [None, Some(secs(2))] {
        let mut limits = Limits::default();
        if let Some(wait) = max_wait {
            limits = limits.max_wait(wait);
        }
        let limited = Limited::new(limits, Scripted::pausing(30));
        // Half of them are as good as new when they are called.
        let mut kept = readied(&limited, 3).await;
        sleep(secs(2)).await;
        kept.extend(readied(&limited, 3).await);
        limited.calls(1).await;
        let refused = Instant::now();
        let calls: JoinSet<_> = kept
            .into_iter()
            .map(|mut kept| async move { kept.call(request()).await })
            .collect();
        let answers = calls.join_all().await;
        let arrivals = limited.service.arrivals();
        if max_wait.is_some() {
            let told: Vec<_> = answers.into_iter().filter_map(unsent).collect();
            assert!(told.iter().all(LimitError::is_timeout), "{told:?}");
            assert_eq!((told.len(), arrivals.len()), (6, 1));
            assert_eq!(refused.elapsed(), secs(2));
        } else {
            assert!(answers.iter().all(Result::is_ok));
            assert!(arrivals[1] >= refused + secs(29), "it pauses");
            assert!(arrivals[2] >= arrivals[1] + ms(20), "one tries");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_rejected_in_the_call_when_it_is_late_for_a_pause() {
    let limited = Limited::before(Scripted::pausing(30));
    let mut kept = limited.shed();
    kept.ready().await.expect("it waits for nothing");
    limited.calls(1).await;
    let told = unsent(kept.call(request()).await).expect("it pauses");
    assert_eq!(told.cause(), WaitCause::Pause);
    assert!(told.retry_after() > Some(secs(29)), "{told}");
    assert_eq!(limited.service.arrivals().len(), 1);
}

/// A full limit, and a service whose call waits.
async fn late() -> (Limited, RequestLimit<Scripted>) {
    let one = NonZeroU32::MIN;
    let limits = Limits::default().in_flight(one).rules(Rules::window());
    let limited = Limited::new(limits, Scripted::new(ms(500), |_| Answer::ok()));
    // Before the first answer no clock has been looked at.
    limited.calls(1).await;
    let mut kept = limited.caller();
    kept.ready().await.expect("its turn");
    sleep(ms(60)).await;
    let mut other = task::spawn(limited.caller().oneshot(request()));
    assert_pending!(other.poll());
    tokio::spawn(other.into_inner());
    (limited, kept)
}

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_again_when_the_call_it_is_lent_to_has_been_made_or_dropped() {
    for dropped in [false, true] {
        let (limited, mut service) = late().await;
        let mut call = task::spawn(service.call(request()));
        assert_pending!(call.poll());
        assert_eq!(limited.service.arrivals().len(), 2);
        // A clone has the service of its own.
        let cloned = tokio::spawn(service.clone().oneshot(request()));
        let mut ready = task::spawn(service.ready());
        assert_pending!(ready.poll());
        if dropped {
            drop(call);
            assert!(ready.is_woken(), "it is back");
        } else {
            sleep(ms(502)).await;
            assert!(call.is_woken());
            assert_pending!(call.poll());
            assert!(ready.is_woken(), "it is back");
            assert_eq!(limited.service.arrivals().len(), 3);
            tokio::spawn(call.into_inner());
        }
        let answer = ready.into_inner().await.expect("its turn");
        answer.call(request()).await.expect("an answer");
        cloned.await.expect("no panic").expect("an answer");
        let sent = if dropped { 4 } else { 5 };
        assert_eq!(limited.service.arrivals().len(), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_is_made_though_its_service_was_dropped() {
    let (limited, mut service) = late().await;
    let call = service.call(request());
    drop(service);
    call.await.expect("an answer");
    assert_eq!(limited.service.arrivals().len(), 3);
}

/// hyper's own client of one connection: it sends in `call`, and is no `Clone`.
struct Connection(SendRequest<Empty<Bytes>>);

impl Service<Request<Empty<Bytes>>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = futures_util::future::BoxFuture<'static, hyper::Result<Response<Incoming>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

async fn connection(came: &Arc<AtomicUsize>) -> Connection {
    let (near, far) = io::duplex(4_096);
    let came = Arc::clone(came);
    let answer = service::service_fn(move |_request: Request<Incoming>| {
        came.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
    });
    let serve = server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), answer);
    tokio::spawn(serve);
    let (sender, driver) = http1::handshake(TokioIo::new(near)).await.expect("a pipe");
    tokio::spawn(driver);
    Connection(sender)
}

#[tokio::test(start_paused = true)]
async fn a_service_that_sends_in_call_is_called_when_it_may_send_and_not_before() {
    let came = Arc::new(AtomicUsize::new(0));
    let layer = RequestLimitLayer::new(Limiter::new(Limits::default()));
    let mut kept: Vec<RequestLimit<Connection>> = Vec::new();
    for _ in 0..30 {
        let mut service = layer.layer(connection(&came).await);
        let ready = Service::<Request<_>>::poll_ready;
        std::future::poll_fn(|cx| ready(&mut service, cx))
            .await
            .expect("a connection");
        kept.push(service);
        sleep(ms(60)).await;
    }
    let calls: Vec<_> = kept
        .iter_mut()
        .map(|kept| kept.call(Request::new(Empty::new())))
        .collect();
    // Whatever was sent is there by then, and no timer has run.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let burst = came.load(Ordering::Relaxed);
    assert!(burst <= 10, "{burst}");
    let calls: JoinSet<_> = calls.into_iter().collect();
    let answers: Vec<Result<Response<PermitBody<Incoming>>, Error<hyper::Error>>> =
        timeout(secs(2), calls.join_all()).await.expect("a second");
    let status = |answer: &Result<Response<_>, _>| answer.as_ref().map(Response::status).ok();
    assert!(
        answers
            .iter()
            .all(|answer| status(answer) == Some(StatusCode::OK))
    );
    assert_eq!(came.load(Ordering::Relaxed), 30);
}
