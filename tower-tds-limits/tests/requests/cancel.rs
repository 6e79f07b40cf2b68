//! Calls that are dropped at any point.

use std::time::Duration;

use tokio::time::{advance, sleep};
use tokio_test::task;
use tower::{Layer, ServiceExt};
use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};

use crate::requests::service::{Answer, Scripted, request};

#[tokio::test(start_paused = true)]
async fn randomly_dropped_calls_leave_no_permit_and_no_waiter() {
    let limiter = Limiter::new(Limits::default().lost_after(Duration::from_millis(200)));
    let mut answers = fastrand::Rng::with_seed(5);
    let service = Scripted::new(Duration::from_millis(30), move |_| {
        match answers.u32(..2_000) {
            0 => Answer::status(429),
            1 => Answer::status(416),
            2 if answers.bool() => Answer::status(423),
            _ => Answer::ok(),
        }
    });
    let limited = RequestLimitLayer::new(limiter.clone()).layer(service.clone());
    let mut rng = fastrand::Rng::with_seed(4);
    let mut calls = Vec::new();
    for _ in 0..100_000 {
        calls.push(task::spawn(limited.clone().oneshot(request())));
        let polled = rng.usize(..calls.len());
        let ready = calls[polled].poll().is_ready();
        if ready || rng.u32(..3) == 0 {
            drop(calls.swap_remove(polled));
        }
        if calls.len() > 200 {
            drop(calls.swap_remove(rng.usize(..calls.len())));
        }
        if rng.u32(..4) == 0 {
            advance(Duration::from_millis(rng.u64(..25))).await;
        }
    }
    let arrivals = service.arrivals().len();
    assert!(arrivals > 300, "{arrivals}");
    drop(calls);
    sleep(Duration::from_secs(120)).await;
    let snapshot = limiter.snapshot();
    assert_eq!(snapshot.in_flight, 0);
    assert_eq!(snapshot.waiting, 0);
    assert_eq!(snapshot.live, 0);
    let answer = limited.oneshot(request()).await;
    answer.expect("the next one passes");
}
