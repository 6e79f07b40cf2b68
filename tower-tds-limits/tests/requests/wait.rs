//! Calls with a bounded wait, and calls that never wait.

use std::num::NonZeroU32;

use tokio::time::sleep;
use tower::ServiceExt;
use tower_tds_limits::{Limits, Quota};

use crate::requests::{
    limited::{Limited, unsent},
    ms, secs,
    service::{Answer, Scripted, request},
};

#[tokio::test(start_paused = true)]
async fn rejected_call_gets_a_retry_after() {
    let limited = Limited::new(
        Limits::new(Quota::per_second(NonZeroU32::MIN)),
        Scripted::new(ms(20), |_| Answer::ok()),
    );
    let shed = limited.shed();
    shed.clone().oneshot(request()).await.expect("the first");
    let answer = shed.clone().oneshot(request()).await;
    let error = unsent(answer).expect("one a second");
    assert!(error.is_rejected());
    let wait = error
        .retry_after()
        .expect("the answer is there, so the time is known");
    assert!(wait > secs(1) && wait < secs(3), "{wait:?}");
    sleep(wait).await;
    // The counter rule shows the rest of the wait only when the window opens.
    sleep(secs(2)).await;
    shed.oneshot(request()).await.expect("its turn");
    assert_eq!(
        limited.service.arrivals().len(),
        2,
        "the rejected one was never sent"
    );
}

#[tokio::test(start_paused = true)]
async fn call_without_waiting_does_not_overtake_waiters() {
    let limited = Limited::new(
        Limits::default().in_flight(NonZeroU32::MIN),
        Scripted::new(secs(1), |_| Answer::ok()),
    );
    let shed = limited.shed();
    let waiting = tokio::spawn(async move { limited.calls(3).await });
    for _ in 0..29 {
        sleep(ms(100)).await;
        let answer = shed.clone().oneshot(request()).await;
        assert!(unsent(answer).is_some_and(|error| error.is_rejected()));
    }
    waiting.await.expect("they pass");
}
