//! What outcomes lead to: silence, a stricter rung, a pause, and calls that outlive their callers.

#![expect(
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    reason = "a surprise in a test is a failed test"
)]

mod cancel;
mod detach;
mod events;
mod service;

use std::{
    collections::VecDeque,
    convert::Infallible,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tokio::{
    task::JoinSet,
    time::{Instant, advance, sleep},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_tds_limits::{Error, Limiter, Limits, Quota, RequestLimitLayer, RequestShedLayer, Rung};

use self::service::{Answer, Scripted, request};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Makes so many calls at once, and waits for all of them.
async fn call_all(limiter: &Limiter, service: &Scripted, calls: usize) -> Vec<StatusCode> {
    let service = RequestLimitLayer::new(limiter.clone()).layer(service.clone());
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        tasks.spawn(service.clone().oneshot(request()));
    }
    let answers = tasks.join_all().await;
    let statuses = answers
        .into_iter()
        .map(|answer| answer.expect("an answer").status());
    statuses.collect()
}

#[tokio::test(start_paused = true)]
async fn a_423_means_a_second_of_silence_for_all_and_one_rung_down() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(423)
        } else {
            Answer::ok()
        }
    });
    assert_eq!(limiter.snapshot().rung, Rung::Proven);
    call_all(&limiter, &service, 1).await;
    let refused = Instant::now();
    let snapshot = limiter.snapshot();
    assert_eq!(snapshot.rung, Rung::Strict);
    assert_eq!(snapshot.silent_until, Some(refused + ms(1_002)));
    call_all(&limiter.clone(), &service, 5).await;
    let after = service.arrivals()[1] - refused;
    assert!(after >= secs(1), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_423s_of_those_in_flight_are_one_refusal() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(500), |n| {
        if n < 8 {
            Answer::status(423)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 8).await;
    assert_eq!(limiter.snapshot().rung, Rung::Strict);
}

#[tokio::test(start_paused = true)]
async fn ten_clean_minutes_lead_back_up() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(423)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 2).await;
    advance(secs(590)).await;
    call_all(&limiter, &service, 1).await;
    assert_eq!(limiter.snapshot().rung, Rung::Strict);
    advance(secs(20)).await;
    call_all(&limiter, &service, 1).await;
    assert_eq!(limiter.snapshot().rung, Rung::Proven);
}

/// A gateway that takes no burst: 20 ms between any two that it accepts, and 423 for the others.
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
async fn a_gateway_without_any_burst_refuses_a_few_and_then_none() {
    let limiter = Limiter::new(Limits::default());
    let service = burstless();
    let refused = |statuses: &[StatusCode]| statuses.iter().filter(|s| **s != 200).count();
    let first = call_all(&limiter, &service, 60).await;
    assert!((1..=10).contains(&refused(&first)), "{}", refused(&first));
    assert_eq!(limiter.snapshot().rung, Rung::Serial);
    let then = call_all(&limiter, &service, 400).await;
    assert_eq!(refused(&then), 0);
    assert_eq!(limiter.snapshot().rung, Rung::Serial);
}

#[tokio::test(start_paused = true)]
async fn a_service_known_to_be_strict_refuses_nothing_if_one_starts_carefully() {
    let limiter = Limiter::new(Limits::default().start_at(Rung::Serial));
    let statuses = call_all(&limiter, &burstless(), 100).await;
    assert!(statuses.iter().all(|status| *status == 200));
}

/// Fifty in any second, the refused not counted.
fn accepts(counted: &Mutex<VecDeque<Instant>>) -> bool {
    let now = Instant::now();
    let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
    counted.retain(|at| now - *at < secs(1));
    let room = counted.len() < 50;
    if room {
        counted.push_back(now);
    }
    room
}

/// Nearly ten minutes of work; every 41 s, when the last time is forgotten, the network stalls.
#[tokio::test(start_paused = true)]
async fn the_highest_rung_is_refused_once_on_a_rough_path() {
    let counted: Arc<Mutex<VecDeque<Instant>>> = Arc::default();
    let begin = Instant::now();
    let service = service_fn(move |_: Request<Empty<Bytes>>| {
        let counted = Arc::clone(&counted);
        async move {
            let at = u64::try_from(begin.elapsed().as_millis()).unwrap_or_default();
            // What is sent during a stall arrives at its end.
            let phase = at % 41_000;
            sleep(if phase > 40_860 {
                ms(41_000 - phase)
            } else {
                ms(5)
            })
            .await;
            let mut response = Response::new(Empty::<Bytes>::new());
            if !accepts(&counted) {
                *response.status_mut() = StatusCode::LOCKED;
            }
            sleep(ms(5)).await;
            Ok::<_, Infallible>(response)
        }
    });
    let limiter = Limiter::new(Limits::default().start_at(Rung::Paced));
    let service = RequestLimitLayer::new(limiter.clone()).layer(service);
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let service = service.clone();
        callers.spawn(async move {
            let mut refused = 0;
            while begin.elapsed() < secs(590) {
                let answer = service.clone().oneshot(request()).await.expect("an answer");
                refused += usize::from(answer.status() == StatusCode::LOCKED);
            }
            refused
        });
    }
    let refused: usize = callers.join_all().await.into_iter().sum();
    assert!((1..=8).contains(&refused), "one stall's: {refused}");
    assert_eq!(limiter.snapshot().rung, Rung::Proven);
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_than_ours_is_found() {
    // Thirty in any second, the refused not counted.
    let mut counted: Vec<Instant> = Vec::new();
    let service = Scripted::new(ms(10), move |_| {
        let now = Instant::now();
        counted.retain(|at| now - *at < secs(1));
        if counted.len() < 30 {
            counted.push(now);
            Answer::ok()
        } else {
            Answer::status(423)
        }
    });
    let limiter = Limiter::new(Limits::default());
    call_all(&limiter, &service, 600).await;
    let then = call_all(&limiter, &service, 300).await;
    assert!(then.iter().all(|status| *status == 200));
    assert!(limiter.snapshot().rung > Rung::Proven);
}

#[tokio::test(start_paused = true)]
async fn a_416_means_a_second_of_silence_and_no_rung() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(416)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 1).await;
    let refused = Instant::now();
    call_all(&limiter, &service, 1).await;
    assert!(service.arrivals()[1] - refused >= secs(1));
    assert_eq!(limiter.snapshot().rung, Rung::Proven);
}

#[tokio::test(start_paused = true)]
async fn a_429_pauses_every_clone_for_as_long_as_it_says() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(429).retry_after(7)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 1).await;
    let refused = Instant::now();
    assert_eq!(limiter.snapshot().paused_until, Some(refused + secs(7)));
    let statuses = call_all(&limiter.clone(), &service, 30).await;
    assert!(statuses.iter().all(|status| *status == 200));
    assert!(service.arrivals()[1] - refused >= secs(7));
    assert_eq!(limiter.snapshot().paused_until, None);
    assert_eq!(
        limiter.snapshot().rung,
        Rung::Proven,
        "it is not about the rate"
    );
}

#[tokio::test(start_paused = true)]
async fn one_request_tries_whether_a_pause_is_over_and_the_others_wait_for_its_answer() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(300), |n| {
        if n < 4 {
            Answer::status(429)
        } else {
            Answer::ok()
        }
    });
    let begin = Instant::now();
    let statuses = call_all(&limiter, &service, 1).await;
    assert_eq!(statuses, [429]);
    let mut statuses = call_all(&limiter, &service, 40).await;
    statuses.retain(|status| *status != 200);
    assert_eq!(statuses.len(), 3, "one for each failed try");
    let sent: Vec<_> = service
        .arrivals()
        .iter()
        .map(|at| at.duration_since(begin).as_secs())
        .collect();
    // 1, 2 and 4 s after the answers, each 0.3 s after its request.
    assert_eq!(sent[..5], [0, 1, 3, 7, 16]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_for_hours_is_told_at_once_and_tried_once_a_minute() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(20), |n| {
        if n < 3 {
            Answer::status(429).retry_after(7_200)
        } else {
            Answer::ok()
        }
    });
    let begin = Instant::now();
    let limited = RequestLimitLayer::new(limiter.clone()).layer(service.clone());
    call_all(&limiter, &service, 1).await;
    let mut answered = 0;
    for second in 1..=200 {
        sleep(begin + secs(second) - Instant::now()).await;
        match limited.clone().oneshot(request()).await {
            Ok(_) => answered += 1,
            Err(Error::Limit(error)) => {
                assert!(error.is_rejected());
                let wait = error.retry_after().expect("the service has said it");
                assert!(wait > secs(6_900), "{wait:?}");
            }
            Err(Error::Inner(never)) => match never {},
        }
    }
    // Tried after one, two and three minutes; the third was accepted, and all that came after it.
    let tried: Vec<_> = service
        .arrivals()
        .iter()
        .map(|at| (*at - begin).as_secs())
        .collect();
    assert_eq!(tried[..4], [0, 61, 122, 183]);
    assert_eq!(answered, 2 + 18);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_told_when_the_wait_turns_out_to_be_for_hours() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(20), |n| match n {
        0 => Answer::status(429),
        _ => Answer::status(429).retry_after(7_200),
    });
    call_all(&limiter, &service, 1).await;
    let limited = RequestLimitLayer::new(limiter.clone()).layer(service.clone());
    let mut waiting = JoinSet::new();
    for _ in 0..30 {
        waiting.spawn(limited.clone().oneshot(request()));
    }
    let begin = Instant::now();
    let told = waiting.join_all().await;
    assert!(begin.elapsed() < secs(2));
    let told = told
        .iter()
        .filter(|answer| matches!(answer, Err(Error::Limit(error)) if error.is_rejected()));
    assert_eq!(told.count(), 29, "all but the one that tried");
    assert_eq!(service.arrivals().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn those_who_queue_when_a_pause_begins_are_not_sent_into_it() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(100), |n| {
        if n == 3 {
            Answer::status(429).retry_after(30)
        } else {
            Answer::ok()
        }
    });
    let begin = Instant::now();
    call_all(&limiter, &service, 300).await;
    let arrivals = service.arrivals();
    let during = arrivals.iter().filter(|at| {
        let since = **at - begin;
        since > ms(105) && since < secs(30)
    });
    assert_eq!(during.count(), 0);
    assert_eq!(arrivals.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn another_credential_does_not_pause() {
    let limiter = Limiter::new(Limits::default());
    let other = limiter.another_credential();
    let service = Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(429).retry_after(50)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 1).await;
    let begin = Instant::now();
    call_all(&other, &service, 1).await;
    assert!(begin.elapsed() < secs(1));
    assert_eq!(other.snapshot().paused_until, None);
    // They share the address's limits.
    assert_eq!(limiter.snapshot().live, other.snapshot().live);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_while_trying_lets_another_try() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(secs(2), |n| {
        if n == 0 {
            Answer::status(429)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 1).await;
    let limited = RequestLimitLayer::new(limiter.clone()).layer(service.clone());
    let tries = tokio::spawn(limited.clone().oneshot(request()));
    sleep(ms(1_500)).await;
    assert_eq!(service.arrivals().len(), 2, "it is on its way");
    tries.abort();
    let statuses = call_all(&limiter, &service, 5).await;
    assert!(statuses.iter().all(|status| *status == 200));
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_counts_the_pause_and_the_queue_together() {
    let quota = Quota::per_second(NonZeroU32::MIN);
    let limiter = Limiter::new(Limits::new(quota).max_wait(secs(5)));
    let service = Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(429).retry_after(4)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 1).await;
    let begin = Instant::now();
    let limited = RequestLimitLayer::new(limiter.clone()).layer(service.clone());
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        tasks.spawn(limited.clone().oneshot(request()));
    }
    let answers = tasks.join_all().await;
    let waits: Vec<_> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            Err(Error::Limit(error)) => error.waited(),
            _ => None,
        })
        .collect();
    // One tries after 4 s; at most one more finds a permit in the second that is left.
    assert!(waits.len() >= 3, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= ms(5_100)), "{waits:?}");
    assert!(begin.elapsed() <= ms(5_100));
    assert_eq!(limiter.snapshot().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_wait_is_told_when_there_will_be_a_permit() {
    let limiter = Limiter::new(Limits::new(Quota::per_second(NonZeroU32::MIN)));
    let service = Scripted::new(ms(20), |_| Answer::ok());
    let shed = RequestShedLayer::new(limiter.clone()).layer(service.clone());
    shed.clone().oneshot(request()).await.expect("the first");
    let answer = shed.clone().oneshot(request()).await;
    let Err(Error::Limit(error)) = answer else {
        panic!("one a second");
    };
    assert!(error.is_rejected());
    let wait = error
        .retry_after()
        .expect("the answer is there, so the time is known");
    assert!(wait > secs(1) && wait < secs(3), "{wait:?}");
    sleep(wait).await;
    // The counter rule can tell the rest only when the window opens.
    sleep(secs(2)).await;
    shed.oneshot(request()).await.expect("its turn");
    assert_eq!(
        service.arrivals().len(),
        2,
        "the rejected one was never sent"
    );
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_wait_passes_nobody_who_does() {
    let limiter = Limiter::new(Limits::default().in_flight(NonZeroU32::MIN));
    let service = Scripted::new(secs(1), |_| Answer::ok());
    let waiting = tokio::spawn({
        let (limiter, service) = (limiter.clone(), service.clone());
        async move { call_all(&limiter, &service, 3).await }
    });
    let shed = RequestShedLayer::new(limiter.clone()).layer(service.clone());
    for _ in 0..29 {
        sleep(ms(100)).await;
        let answer = shed.clone().oneshot(request()).await;
        assert!(matches!(answer, Err(Error::Limit(error)) if error.is_rejected()));
    }
    waiting.await.expect("they pass");
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_wait_is_rejected_through_a_pause() {
    let limiter = Limiter::new(Limits::default());
    let service = Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(429).retry_after(9)
        } else {
            Answer::ok()
        }
    });
    call_all(&limiter, &service, 1).await;
    let shed = RequestShedLayer::new(limiter).layer(service.clone());
    let Err(Error::Limit(error)) = shed.oneshot(request()).await else {
        panic!("it pauses");
    };
    assert_eq!(error.retry_after(), Some(secs(9)));
    assert_eq!(service.arrivals().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_certificate_is_reached_and_never_exceeded() {
    let limiter = Limiter::new(Limits::default());
    assert_eq!(limiter.snapshot().certificate, 0);
    let service = Scripted::new(ms(150), |_| Answer::ok());
    call_all(&limiter, &service, 500).await;
    let certificate = limiter.snapshot().certificate;
    assert!((45..=50).contains(&certificate), "{certificate}");
}
