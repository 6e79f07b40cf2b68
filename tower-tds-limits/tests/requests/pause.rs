//! Refusals for a key: a pause of the stack that got them.

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt};
use tower_tds_limits::Error;

use crate::requests::{
    limited::{Limited, unsent},
    ms, secs,
    service::{Answer, Scripted, request},
};

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_429_pauses_every_clone() {
    let limited = Limited::before(Scripted::pausing(7));
    limited.calls(1).await;
    let refused = Instant::now();
    assert_eq!(limited.limiter.snapshot().paused_for, Some(secs(7)));
    let statuses = limited.clone().calls(30).await;
    assert!(statuses.iter().all(|status| *status == 200));
    assert!(limited.service.arrivals()[1] - refused >= secs(7));
    assert_eq!(limited.limiter.snapshot().paused_for, None);
    let snapshot = limited.limiter.snapshot();
    assert_eq!(snapshot.lowered_for, None, "it is not about the rate");
}

#[tokio::test(start_paused = true)]
async fn long_pause_rejects_calls_and_sends_one_a_minute() {
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
    // Sent after one, two and three minutes; the third was accepted, and all that came after it.
    let sent: Vec<_> = limited
        .service
        .arrivals()
        .iter()
        .map(|at| (*at - begin).as_secs())
        .collect();
    assert_eq!(sent[..4], [0, 61, 122, 183]);
    assert_eq!(answered, 2 + 18);
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_are_rejected_when_a_long_pause_begins() {
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
    let rejected = told.filter(Error::is_rejected);
    // Before the first of them is answered, ten are sent: as many as the bucket takes.
    assert_eq!(rejected.count(), 20);
    assert_eq!(limited.service.arrivals().len(), 1 + 10);
}

/// Data, a client with another key, and tokens, on one limiter.
#[tokio::test(start_paused = true)]
async fn a_429_pauses_only_the_layer_that_got_it() {
    let one = Limited::before(Scripted::pausing(50));
    one.calls(1).await;
    let begin = Instant::now();
    for limiter in [one.limiter.clone(), one.limiter.first_in_line()] {
        let other = Limited::of(&limiter, one.service.clone());
        other.calls(1).await;
        assert!(begin.elapsed() < secs(1));
        let (one, other) = (one.limiter.snapshot(), other.limiter.snapshot());
        assert_eq!(other.paused_for, None);
        assert_eq!(one.live, other.live, "they share the address's limits");
    }
    let another = one.layer.layer(one.service.clone());
    another.oneshot(request()).await.expect("an answer");
    assert!(
        begin.elapsed() >= secs(49),
        "the layer's services pause together"
    );
}
