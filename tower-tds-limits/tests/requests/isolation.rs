//! No call stops another: slow, lost and unpolled calls, and readied services that are kept.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream};
use http::{Request, Response};
use http_body_util::{Empty, combinators::UnsyncBoxBody};
use tokio::{
    task::JoinSet,
    time::{Instant, advance, sleep, timeout},
};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_tds_limits::{Burst, Limiter, Limits, PermitBody, Quota, RequestLimitLayer, Rules};

use crate::requests::{
    limited::Limited,
    ms, secs,
    service::{Answer, Scripted, by_second, request},
};

/// When quick requests came, as a server sees them.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<Instant>>>);

impl Arrivals {
    fn note(&self) {
        let mut arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.push(Instant::now());
    }

    /// Returns how many requests came in each second from `begin` on.
    fn by_second(&self, begin: Instant, seconds: usize) -> Vec<usize> {
        let arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_second(&arrivals, begin, seconds)
    }
}

/// Response that a request describes.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Quick,
    Slow,
    Never,
}

/// Answers quick requests after 80 ms, slow ones after 12 s, and others never.
async fn served(
    request: Request<Fate>,
    arrivals: Arrivals,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    match request.into_body() {
        Fate::Quick => {
            arrivals.note();
            sleep(ms(80)).await;
        }
        Fate::Slow => sleep(secs(12)).await,
        Fate::Never => std::future::pending().await,
    }
    Ok(Response::new(Empty::new()))
}

/// Runs ten loops of quick calls, and makes some other calls after three seconds. Returns how many
/// quick requests came in each second from then on.
async fn beside_some(others: usize, fate: Fate, rules: Rules) -> Vec<usize> {
    let arrivals = Arrivals::default();
    let noted = arrivals.clone();
    let limiter = Limiter::new(Limits::default().rules(rules));
    // A token endpoint answers much faster than the service.
    let tokens =
        RequestLimitLayer::new(limiter.first_in_line()).layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }));
    drop(tokens.oneshot(Request::new(())).await);
    let service = RequestLimitLayer::new(limiter)
        .layer(service_fn(move |request| served(request, noted.clone())));
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let service = service.clone();
        tasks.spawn(async move {
            loop {
                drop(service.clone().oneshot(Request::new(Fate::Quick)).await);
            }
        });
    }
    sleep(secs(3)).await;
    let begin = Instant::now();
    for _ in 0..others {
        let call = service.clone().oneshot(Request::new(fate));
        tasks.spawn(async move { drop(call.await) });
    }
    sleep(secs(40)).await;
    arrivals.by_second(begin, 40)
}

#[tokio::test(start_paused = true)]
async fn ten_slow_calls_halve_the_rate_of_others_at_most() {
    for fate in [Fate::Slow, Fate::Never] {
        let seconds = beside_some(10, fate, Rules::default()).await;
        assert!(seconds[1..].iter().all(|n| *n >= 25), "{seconds:?}");
    }
}

/// Eleven slow calls look like a stalled network until three seconds are over.
#[tokio::test(start_paused = true)]
async fn over_ten_slow_calls_delay_others_at_most_eight_seconds() {
    for slow in [11, 15, 20, 25] {
        for fate in [Fate::Slow, Fate::Never] {
            let seconds = beside_some(slow, fate, Rules::default()).await;
            assert!(seconds[8..].iter().all(|n| *n >= 15), "{slow}: {seconds:?}");
        }
    }
}

/// A stream of calls that is polled when its consumer has time, as `while let Some(answer) = stream.next()` does.
#[tokio::test(start_paused = true)]
async fn slowly_polled_stream_of_calls_does_not_block_others() {
    for (calls, work) in [(200, ms(1_000)), (200, ms(100)), (500, ms(300))] {
        let seconds = beside(async |limited| {
            let mut stream = FuturesUnordered::new();
            for _ in 0..calls {
                stream.push(limited.caller().oneshot(request()));
            }
            let end = Instant::now() + secs(20);
            while Instant::now() < end {
                drop(poll_fn(|cx| Poll::Ready(Pin::new(&mut stream).poll_next(cx))).await);
                stream.push(limited.caller().oneshot(request()));
                sleep(work).await;
            }
        })
        .await;
        assert!(
            seconds[1..12].iter().all(|n| *n >= 20),
            "{calls}: {seconds:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_calls_block_only_a_burst_they_fill() {
    for (burst, calls) in [(9, 0..=0), (30, 25..=50)] {
        let rules = Rules {
            bucket: Some(Burst::Of(burst)),
            ..Rules::window()
        };
        let seconds = beside_some(10, Fate::Never, rules).await;
        assert!(
            seconds[2..].iter().all(|n| calls.contains(n)),
            "{seconds:?}"
        );
    }
}

/// Thirty loops of calls that are answered after 50 ms, but not while the connections are cut.
async fn while_cut(error: io::ErrorKind) -> Vec<usize> {
    let arrivals = Arrivals::default();
    let noted = arrivals.clone();
    let begin = Instant::now();
    let cut = begin + secs(3)..begin + ms(3_400);
    let server = cut.clone();
    let service = service_fn(move |_: Request<()>| {
        noted.note();
        let cut = server.contains(&Instant::now());
        async move {
            sleep(ms(if cut { 1 } else { 50 })).await;
            if cut {
                Err(io::Error::from(error))
            } else {
                Ok(Response::new(Empty::<Bytes>::new()))
            }
        }
    });
    let service = RequestLimitLayer::new(Limiter::new(Limits::default())).layer(service);
    let mut tasks = JoinSet::new();
    for _ in 0..30 {
        let service = service.clone();
        tasks.spawn(async move {
            loop {
                if service.clone().oneshot(Request::new(())).await.is_err() {
                    sleep(ms(100)).await;
                }
            }
        });
    }
    sleep(secs(20)).await;
    arrivals.by_second(cut.start, 15)
}

#[tokio::test(start_paused = true)]
async fn lost_responses_leave_others_fifteen_calls_a_second_and_refused_connects_twenty_five() {
    for (error, from, least) in [
        (io::ErrorKind::ConnectionReset, 2, 15),
        (io::ErrorKind::ConnectionRefused, 1, 25),
    ] {
        let seconds = while_cut(error).await;
        assert!(seconds[from..].iter().all(|n| *n >= least), "{seconds:?}");
    }
}

/// Returns how many calls twenty loops make in each of sixteen seconds while `disturb` runs.
async fn beside(disturb: impl AsyncFnOnce(&Limited)) -> Vec<usize> {
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
    let begin = Instant::now();
    disturb(&limited).await;
    sleep((begin + secs(16)).saturating_duration_since(Instant::now())).await;
    limited.service.by_second(begin, 16)
}

/// Calls that are kept for twelve seconds cost the others nothing, then or after.
fn assert_full_rate(seconds: &[usize]) {
    assert!(seconds.iter().all(|n| *n >= 40), "{seconds:?}");
}

fn poll_once<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    let polled = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    future
}

#[tokio::test(start_paused = true)]
async fn thousand_futures_polled_once_do_not_block_others() {
    let seconds = beside(async |limited| {
        let kept: Vec<_> = (0..1_000)
            .map(|_| poll_once(limited.caller().oneshot(request())))
            .collect();
        sleep(secs(12)).await;
        drop(kept);
    })
    .await;
    assert_full_rate(&seconds);
}

#[tokio::test(start_paused = true)]
async fn calls_dropped_by_a_select_do_not_block_others() {
    let seconds = beside(async |limited| {
        let end = Instant::now() + secs(12);
        while Instant::now() < end {
            let mut calls: Vec<_> = (0..5)
                .map(|_| Box::pin(limited.caller().oneshot(request())))
                .collect();
            let raced = futures_util::future::select_all(calls.iter_mut());
            drop(timeout(ms(3), raced).await);
        }
    })
    .await;
    assert_full_rate(&seconds);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_idle_when_nothing_is_in_flight_or_completed() {
    let limited = Limited::before(Scripted::new(ms(700), |_| Answer::ok()));
    limited.limiter.idle().await;
    let begin = Instant::now();
    drop(timeout(ms(50), limited.caller().oneshot(request())).await);
    assert_eq!(limited.limiter.snapshot().in_flight, 1);
    limited.limiter.idle().await;
    assert!((ms(700)..ms(720)).contains(&begin.elapsed()));
    assert_eq!(limited.limiter.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn request_limit_composes_with_towers_layers_and_boxed_errors() {
    let limiter = Limiter::new(Limits::default());
    let layer = RequestLimitLayer::new(limiter);
    let inner = || {
        service_fn(async |_: Request<Empty<Bytes>>| {
            Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new()))
        })
    };
    let stack = ServiceBuilder::new()
        .timeout(secs(1))
        .layer(layer.clone())
        .buffer(4)
        .timeout(secs(1))
        .layer(layer.clone())
        .buffer(4)
        .load_shed()
        .concurrency_limit(3)
        .rate_limit(10, secs(1))
        .service(inner());
    let call = tokio::spawn(stack.oneshot(request()));
    call.await.expect("no panic").expect("an answer");
    let boxed = ServiceBuilder::new()
        .map_err(BoxError::from)
        .layer(layer.clone())
        .service(inner());
    BoxCloneSyncService::new(boxed)
        .oneshot(request())
        .await
        .expect("an answer");
    // An optional layer needs the response and error types of the service below it.
    let optional = ServiceBuilder::new()
        .map_response(|answer: Response<PermitBody<_>>| answer.map(UnsyncBoxBody::new))
        .map_err(BoxError::from)
        .layer(layer)
        .into_inner();
    for optional in [Some(optional), None] {
        let boxed = inner().map_response(|answer| answer.map(UnsyncBoxBody::new));
        let stack = ServiceBuilder::new().option_layer(optional).service(boxed);
        stack.oneshot(request()).await.expect("an answer");
    }
    advance(ms(1)).await;
}

/// Behind a gateway that has timed out, the service may still begin the request.
#[tokio::test(start_paused = true)]
async fn a_504_counts_as_lost() {
    let limits = Limits::new(Quota::per_second(NonZeroU32::MIN)).rules(Rules::window());
    let timed_out = Scripted::refusing(ms(20), 1, Answer::status(504));
    let limited = Limited::new(limits, timed_out);
    limited.calls(2).await;
    let arrivals = limited.service.arrivals();
    let between = arrivals[1] - arrivals[0];
    // Adds the time of the answer, `lost_after`, and the interval with its guard.
    assert!((ms(11_022)..ms(11_030)).contains(&between), "{between:?}");
}
