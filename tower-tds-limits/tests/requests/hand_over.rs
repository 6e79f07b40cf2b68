//! Whether a dropped call was sent, compared with what the server saw.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
use tower_tds_outcome::{Cause, HandOver, Handed, Outcome};

use crate::requests::{bounds::request_until, limited::unsent, ms, secs, service::request};

/// Each call has a limiter of its own, whose live permits show whether the call counts as sent. Its
/// client connects and sends in a task, which races with the drop.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn call_that_returns_its_permit_was_never_sent() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let mut callers = JoinSet::new();
    for caller in 0..16_u64 {
        let seen = Arc::clone(&seen);
        callers.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(caller);
            let (mut unsent, mut sent) = (Vec::new(), 0_usize);
            for call in 0..100 {
                let path = format!("/{caller}/{call}");
                let (connects, patience) = (rng.u64(..2_000), rng.u64(..2_000));
                let limiter = Limiter::new(Limits::default());
                let seen = Arc::clone(&seen);
                let client = service_fn(move |request: Request<Empty<Bytes>>| {
                    let mut hand_over = HandOver::of(request.extensions());
                    assert!(hand_over.mark(Handed::Held));
                    let (seen, (answer, answered)) = (Arc::clone(&seen), oneshot::channel());
                    tokio::spawn(async move {
                        sleep(Duration::from_micros(connects)).await;
                        if hand_over.mark(Handed::Taken) {
                            let path = request.uri().path().to_owned();
                            seen.lock().expect("no panic").insert(path);
                            sleep(ms(1)).await;
                            answer.send(Response::new(Empty::<Bytes>::new())).ok();
                        }
                    });
                    async {
                        let answered = answered.await;
                        answered.map_err(|_| Cause::new(Outcome::Unsent))
                    }
                });
                let service = RequestLimitLayer::new(limiter.clone()).layer(client);
                let mut request = request_until(Instant::now() + secs(60));
                *request.uri_mut() = path.parse().expect("a path");
                let response = service.oneshot(request);
                if timeout(Duration::from_micros(patience), response)
                    .await
                    .is_ok()
                {
                    continue;
                }
                if limiter.snapshot().live == 0 {
                    unsent.push(path);
                } else {
                    sent += 1;
                }
            }
            (unsent, sent)
        });
    }
    let (mut unsent, mut sent) = (Vec::new(), 0);
    for (never, other) in callers.join_all().await {
        unsent.extend(never);
        sent += other;
    }
    // Whatever is to be sent is sent by then.
    sleep(ms(200)).await;
    let seen = seen.lock().expect("no panic");
    let wrong: Vec<_> = unsent.iter().filter(|path| seen.contains(*path)).collect();
    assert!(wrong.is_empty(), "the server saw {wrong:?}");
    assert!(
        unsent.len() > 20 && sent > 20,
        "both happen: {} and {sent}",
        unsent.len()
    );
}

/// How a call ends that waits for its connection.
#[derive(Debug, Clone, Copy)]
enum Ends {
    ResponseTimeout,
    Deadline,
    Dropped,
}

/// Nothing shows whether such a call was sent, so its error says that it may have been.
#[tokio::test(start_paused = true)]
async fn call_over_a_client_that_marks_nothing_counts_as_sent_and_is_not_sent_after_its_deadline() {
    for ends in [Ends::ResponseTimeout, Ends::Deadline, Ends::Dropped] {
        let limiter = Limiter::new(Limits::default());
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        // Connects for a second, then sends.
        let connects = service_fn(move |_: Request<Empty<Bytes>>| {
            let count = Arc::clone(&count);
            async move {
                sleep(secs(1)).await;
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let layer = RequestLimitLayer::new(limiter.clone());
        let (at, begin) = (ms(400), Instant::now());
        let call = match ends {
            Ends::ResponseTimeout => {
                let service = layer.response_timeout(at).layer(connects);
                Some(service.oneshot(request()).await)
            }
            Ends::Deadline => {
                let call = layer.layer(connects).oneshot(request_until(begin + at));
                Some(call.await)
            }
            Ends::Dropped => {
                let call = layer.layer(connects).oneshot(request_until(begin + at));
                timeout(ms(100), call).await.ok()
            }
        };
        if let Some(answer) = call {
            let error = unsent(answer).expect("a timeout");
            assert_eq!(begin.elapsed(), at);
            let text = error.to_string();
            assert!(text.ends_with("request may have been sent"), "{text}");
        }
        sleep(secs(5)).await;
        assert_eq!(
            sent.load(Ordering::Relaxed),
            0,
            "{ends:?}: nothing is sent later"
        );
        let snapshot = limiter.snapshot();
        assert_eq!((snapshot.in_flight, snapshot.live), (0, 1), "{ends:?}");
    }
}

/// Sixty callers make calls for twenty seconds. Every `n`-th one is reset before its head, which its client marks. Returns
/// how many requests a second the service saw in the last ten.
async fn rate_beside_resets(n: usize) -> usize {
    let begin = Instant::now();
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&arrivals);
    let client = service_fn(move |request: Request<Empty<Bytes>>| {
        let mut hand_over = HandOver::of(request.extensions());
        assert!(hand_over.mark(Handed::Held) && hand_over.mark(Handed::Taken));
        let mut seen = seen.lock().expect("no panic");
        seen.push(begin.elapsed());
        let is_reset = seen.len().is_multiple_of(n);
        async move {
            sleep(ms(50)).await;
            if !is_reset {
                return Ok(Response::new(Empty::<Bytes>::new()));
            }
            hand_over.mark(Handed::Ended);
            Err(Cause::new(Outcome::Lost))
        }
    });
    let service = RequestLimitLayer::new(Limiter::new(Limits::default())).layer(client);
    let mut callers = JoinSet::new();
    for _ in 0..60 {
        let service = service.clone();
        callers.spawn(async move {
            loop {
                drop(
                    service
                        .clone()
                        .oneshot(request_until(Instant::now() + secs(60)))
                        .await,
                );
            }
        });
    }
    sleep(secs(20)).await;
    callers.abort_all();
    let arrivals = arrivals.lock().expect("no panic");
    let late = arrivals.iter().filter(|at| **at >= secs(10));
    late.count() / 10
}

#[tokio::test(start_paused = true)]
async fn resets_of_half_of_the_calls_leave_seven_tenths_of_the_rate() {
    let (without, beside) = (
        rate_beside_resets(usize::MAX).await,
        rate_beside_resets(2).await,
    );
    assert!(beside * 10 >= without * 7, "{beside} of {without}");
}
