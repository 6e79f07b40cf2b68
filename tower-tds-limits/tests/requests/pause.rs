//! Refusals for the credential: a pause, and one request that tries.

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Empty;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_tds_limits::{LimitError, Limiter, Limits, RequestLimitLayer, Rung};

use crate::{
    limited::{Limited, unsent},
    ms, secs,
    service::{Answer, Scripted, request},
};

#[tokio::test(start_paused = true)]
async fn a_429_pauses_every_clone_for_as_long_as_it_says() {
    let limited = Limited::before(Scripted::pausing(7));
    limited.calls(1).await;
    let refused = Instant::now();
    assert_eq!(limited.limiter.snapshot().paused_for, Some(secs(7)));
    let statuses = limited.clone().calls(30).await;
    assert!(statuses.iter().all(|status| *status == 200));
    assert!(limited.service.arrivals()[1] - refused >= secs(7));
    assert_eq!(limited.limiter.snapshot().paused_for, None);
    assert_eq!(
        limited.limiter.snapshot().rung,
        Rung::Proven,
        "it is not about the rate"
    );
}

#[tokio::test(start_paused = true)]
async fn one_request_tries_whether_a_pause_is_over_and_the_others_wait_for_its_answer() {
    let limited = Limited::before(Scripted::refusing(ms(300), 4, Answer::status(429)));
    let begin = Instant::now();
    let statuses = limited.calls(1).await;
    assert_eq!(statuses, [429]);
    let mut statuses = limited.calls(40).await;
    statuses.retain(|status| *status != 200);
    assert_eq!(statuses.len(), 3, "one for each failed try");
    let sent: Vec<_> = limited
        .service
        .arrivals()
        .iter()
        .map(|at| at.duration_since(begin).as_secs())
        .collect();
    // 1, 2 and 4 s after the answers, each 0.3 s after its request.
    assert_eq!(sent[..5], [0, 1, 3, 7, 16]);
}

#[tokio::test(start_paused = true)]
async fn a_try_that_meets_another_limit_says_nothing_of_the_pause() {
    for other in [416, 423, 502, 504] {
        let limited = Limited::before(Scripted::new(ms(20), move |n| match n {
            1 => Answer::status(other),
            _ => Answer::status(429).retry_after(5),
        }));
        limited.calls(1).await;
        let caller = limited.caller();
        let mut waiting = JoinSet::new();
        for _ in 0..20 {
            waiting.spawn(caller.clone().oneshot(request()));
        }
        sleep(secs(8)).await;
        // The first, the one that tried, and the one that tried after it.
        assert_eq!(limited.service.arrivals().len(), 3, "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_for_hours_is_told_at_once_and_tried_once_a_minute() {
    let limited = Limited::before(Scripted::refusing(
        ms(20),
        3,
        Answer::status(429).retry_after(7_200),
    ));
    let begin = Instant::now();
    let caller = limited.caller();
    limited.calls(1).await;
    let mut answered = 0;
    for second in 1..=200 {
        sleep(begin + secs(second) - Instant::now()).await;
        let Some(error) = unsent(caller.clone().oneshot(request()).await) else {
            answered += 1;
            continue;
        };
        assert!(error.is_rejected());
        let wait = error.retry_after().expect("the service has said it");
        assert!(wait > secs(6_900), "{wait:?}");
    }
    // Tried after one, two and three minutes; the third was accepted, and all that came after it.
    let tried: Vec<_> = limited
        .service
        .arrivals()
        .iter()
        .map(|at| (*at - begin).as_secs())
        .collect();
    assert_eq!(tried[..4], [0, 61, 122, 183]);
    assert_eq!(answered, 2 + 18);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_told_when_the_wait_turns_out_to_be_for_hours() {
    let limited = Limited::before(Scripted::new(ms(20), |n| match n {
        0 => Answer::status(429),
        _ => Answer::status(429).retry_after(7_200),
    }));
    limited.calls(1).await;
    let caller = limited.caller();
    let mut waiting = JoinSet::new();
    for _ in 0..30 {
        waiting.spawn(caller.clone().oneshot(request()));
    }
    let begin = Instant::now();
    let told = waiting.join_all().await;
    assert!(begin.elapsed() < secs(2));
    let told = told.into_iter().filter_map(unsent);
    let rejected = told.filter(LimitError::is_rejected);
    assert_eq!(rejected.count(), 29, "all but the one that tried");
    assert_eq!(limited.service.arrivals().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn those_who_queue_when_a_pause_begins_are_not_sent_into_it() {
    let limited = Limited::before(Scripted::new(ms(100), |n| match n {
        3 => Answer::status(429).retry_after(30),
        _ => Answer::ok(),
    }));
    let begin = Instant::now();
    limited.calls(300).await;
    let arrivals = limited.service.arrivals();
    let during = arrivals.iter().filter(|at| {
        let since = **at - begin;
        since > ms(105) && since < secs(30)
    });
    assert_eq!(during.count(), 0);
    assert_eq!(arrivals.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn another_credential_does_not_pause() {
    let one = Limited::before(Scripted::pausing(50));
    let other = Limited {
        limiter: one.limiter.another_credential(),
        service: one.service.clone(),
    };
    one.calls(1).await;
    let begin = Instant::now();
    other.calls(1).await;
    assert!(begin.elapsed() < secs(1));
    let (one, other) = (one.limiter.snapshot(), other.limiter.snapshot());
    assert_eq!(other.paused_for, None);
    assert_eq!(one.live, other.live, "they share the address's limits");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_while_trying_lets_another_try() {
    let limited = Limited::before(Scripted::refusing(secs(2), 1, Answer::status(429)));
    limited.calls(1).await;
    let caller = limited.caller();
    let tries = tokio::spawn(caller.clone().oneshot(request()));
    sleep(ms(1_500)).await;
    assert_eq!(limited.service.arrivals().len(), 2, "it is on its way");
    tries.abort();
    let statuses = limited.calls(5).await;
    assert!(statuses.iter().all(|status| *status == 200));
}

#[tokio::test(start_paused = true)]
async fn one_who_tries_and_waits_too_long_for_a_permit_lets_another_try() {
    let limited = Limited::new(
        Limits::default()
            .in_flight(NonZeroU32::MIN)
            .max_wait(secs(5)),
        Scripted::refusing(secs(10), 1, Answer::status(429)),
    );
    let other = Limited {
        limiter: limited.limiter.another_credential(),
        service: limited.service.clone(),
    };
    limited.calls(1).await;
    let holds = tokio::spawn(async move { other.calls(1).await });
    sleep(ms(1)).await;
    assert!(limited.caller().oneshot(request()).await.is_err());
    holds.await.expect("it is answered");
    let answer = limited.caller().oneshot(request()).await;
    answer.expect("another probes");
}

#[tokio::test(start_paused = true)]
async fn what_the_service_tells_the_one_that_tries_counts_and_not_what_it_told_before() {
    let limited = Limited::before(Scripted::new(ms(20), |n| match n {
        0 => Answer::status(429).retry_after(86_400),
        1 => Answer::status(429).retry_after(30),
        _ => Answer::ok(),
    }));
    limited.calls(1).await;
    sleep(secs(60)).await;
    assert_eq!(limited.calls(1).await, [429], "it tries");
    assert_eq!(
        limited.calls(3).await,
        [200; 3],
        "half a minute is waited for"
    );
    let arrivals = limited.service.arrivals();
    let waited = arrivals[2] - arrivals[1];
    assert!(waited >= secs(30) && waited < secs(31), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_wait_again_once_a_long_pause_is_over_and_no_other_was_told() {
    let limited = Limited::before(Scripted::new(ms(20), |n| match n {
        0 => Answer::status(429).retry_after(100),
        1 | 2 => Answer::status(429),
        _ => Answer::ok(),
    }));
    limited.calls(1).await;
    sleep(secs(60)).await;
    assert_eq!(limited.calls(1).await, [429], "it tries");
    sleep(secs(45)).await;
    assert_eq!(limited.calls(1).await, [429], "it tries");
    assert_eq!(limited.calls(3).await, [200; 3], "they wait");
}

#[tokio::test(start_paused = true)]
async fn a_late_acceptance_of_a_try_that_was_given_up_does_not_end_a_newer_pause() {
    let limiter = Limiter::new(Limits::default());
    let came = Arc::new(AtomicUsize::new(0));
    let answers = service_fn(move |_: Request<()>| {
        let number = came.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut response = Response::new(Empty::<Bytes>::new());
            if number == 1 {
                // Longer than the wait for a probe, and accepted.
                sleep(secs(40)).await;
            } else {
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                let wait = HeaderValue::from_static("60");
                response.headers_mut().insert(header::RETRY_AFTER, wait);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let service = RequestLimitLayer::new(limiter.clone()).layer(answers);
    let call = || service.clone().oneshot(Request::new(()));
    call().await.expect("a refusal");
    sleep(secs(60)).await;
    let tries = tokio::spawn(call());
    sleep(secs(1)).await;
    call().await.expect("a second try, and a refusal");
    let pauses = || limiter.snapshot().paused_for;
    assert!(pauses() > Some(secs(59)));
    let late = tries.await.expect("no panic").expect("an answer");
    assert_eq!(late.status(), StatusCode::OK);
    assert!(pauses() > Some(secs(45)), "{:?}", pauses());
}

/// It would be waited for in vain.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_service_is_not_ready_does_not_take_the_try() {
    let limited = Limited::before(Scripted::pausing(2));
    limited.calls(1).await;
    let refused = Instant::now();
    let full = ConcurrencyLimit::new(limited.service.clone(), 0);
    let full = RequestLimitLayer::new(limited.limiter.clone()).layer(full);
    let waits = tokio::spawn(async move { full.oneshot(request()).await.map(drop) });
    sleep(ms(1)).await;
    assert_eq!(limited.calls(3).await, [200; 3]);
    assert!(refused.elapsed() < secs(4), "{:?}", refused.elapsed());
    waits.abort();
}
