//! Load beyond the quota, from callers with deadlines: what is sent is answered, and the rest learns
//! at once that it is not sent.

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_tds_limits::{Error, Limiter, Limits, PermitBody, Quota, RequestLimitLayer, WaitCause};
use tower_tds_outcome::HandOver;

use crate::{
    bounds::request_until,
    limited::{Limited, unsent},
    ms, secs,
    service::{Answer, Scripted, request},
};

fn request_within(left: Duration) -> Request<Empty<Bytes>> {
    request_until(Instant::now() + left)
}

type Caller = BoxCloneSyncService<Request<Empty<Bytes>>, Response<PermitBody<Empty<Bytes>>>, Error>;

/// Counts of one kind of calls, by the service and by their callers.
#[derive(Debug, Default)]
struct Kind {
    sent: AtomicUsize,
    answered: AtomicUsize,
}

/// One load on one limiter, whose service answers call `n` after `takes(n)`.
#[derive(Clone)]
struct Load {
    limiter: Limiter,
    caller: Caller,
    deadline: Option<Duration>,
    quick: Arc<Kind>,
    slow: Arc<Kind>,
    rejected: Arc<AtomicUsize>,
    /// Rejections that came later than their call.
    late: Arc<AtomicUsize>,
}

/// A number that a call carries to the service.
#[derive(Debug, Clone, Copy)]
struct Takes(Duration);

// === impl Load ===

impl Load {
    fn new(deadline: Option<Duration>) -> Self {
        let limiter = Limiter::new(Limits::default());
        let [quick, slow] = [(); 2].map(|()| Arc::new(Kind::default()));
        let kinds = (Arc::clone(&quick), Arc::clone(&slow));
        let service = service_fn(move |request: Request<Empty<Bytes>>| {
            let extensions = request.extensions();
            assert!(HandOver::hold(extensions) && HandOver::take(extensions));
            let Takes(takes) = *extensions.get().expect("a time");
            Self::kind(&kinds.0, &kinds.1, takes)
                .sent
                .fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                sleep(takes).await;
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            })
        });
        let caller = Caller::new(RequestLimitLayer::new(limiter.clone()).layer(service));
        Self {
            limiter,
            caller,
            deadline,
            quick,
            slow,
            rejected: Arc::default(),
            late: Arc::default(),
        }
    }

    fn kind<'a>(quick: &'a Kind, slow: &'a Kind, takes: Duration) -> &'a Kind {
        if takes < ms(1_000) { quick } else { slow }
    }

    async fn make(self, takes: Duration) -> bool {
        let begin = Instant::now();
        let mut request = self.deadline.map_or_else(request, request_within);
        request.extensions_mut().insert(Takes(takes));
        let answer = self.caller.oneshot(request).await;
        match &answer {
            Ok(_) => {
                let kind = Self::kind(&self.quick, &self.slow, takes);
                kind.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.is_rejected() => {
                self.rejected.fetch_add(1, Ordering::Relaxed);
                self.late
                    .fetch_add((begin.elapsed() > Duration::ZERO).into(), Ordering::Relaxed);
            }
            Err(_) => {}
        }
        answer.is_ok()
    }

    /// Makes `rate` calls a second at random times.
    async fn run(
        &self,
        rate: f64,
        lasts: Duration,
        rng: &mut Rng,
        takes: impl Fn(&mut Rng) -> Duration,
    ) {
        let (begin, mut at) = (Instant::now(), Duration::ZERO);
        let mut calls = JoinSet::new();
        while at < lasts {
            sleep_until(begin + at).await;
            calls.spawn(self.clone().make(takes(rng)));
            at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate);
        }
        if self.deadline.is_some() {
            calls.join_all().await;
        }
    }

    /// Whether all calls are answered if one comes every 50 ms.
    async fn is_healthy(&self, takes: Duration) -> bool {
        let mut calls = JoinSet::new();
        for _ in 0..40 {
            calls.spawn(self.clone().make(takes));
            sleep(ms(50)).await;
        }
        calls.join_all().await.into_iter().all(|answered| answered)
    }
}

impl Kind {
    fn share(&self) -> f64 {
        let [answered, sent] =
            [&self.answered, &self.sent].map(|count| count.load(Ordering::Relaxed));
        answered as f64 / sent.max(1) as f64
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

/// The requests of a minute that are sent at this load without deadlines.
async fn sent_without_deadlines(rate: f64, takes: Duration) -> usize {
    let load = Load::new(None);
    load.run(rate, secs(60), &mut Rng::with_seed(7), |_| takes)
        .await;
    load.quick.sent()
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_under_overload_is_answered() {
    let loads = [45.0, 50.0, 60.0, 80.0, 110.0, 120.0];
    for (takes, allowed) in [(80, 1), (80, 2), (600, 1), (600, 2)] {
        for rate in loads {
            let most = sent_without_deadlines(rate, ms(takes)).await;
            let case = format!("{rate}/s, {takes} ms, {allowed} s");
            let load = Load::new(Some(secs(allowed)));
            let mut rng = Rng::with_seed(takes + allowed);
            load.run(rate, secs(60), &mut rng, |_| ms(takes)).await;
            assert!(load.quick.share() >= 0.93, "{case}");
            assert!(load.quick.sent() as f64 >= 0.9 * most as f64, "{case}");
            assert_eq!(load.late.load(Ordering::Relaxed), 0, "{case}");
            sleep(secs(2)).await;
            assert!(load.is_healthy(ms(takes)).await, "{case}");
            assert_eq!(load.limiter.snapshot().waiting, 0, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_and_quick_calls_are_answered_alike() {
    for rate in [45.0, 60.0, 120.0] {
        let load = Load::new(Some(secs(2)));
        let mixed = |rng: &mut Rng| if rng.u8(..10) < 3 { secs(1) } else { ms(80) };
        load.run(rate, secs(60), &mut Rng::with_seed(3), mixed)
            .await;
        for (kind, name) in [(&load.quick, "quick"), (&load.slow, "slow")] {
            assert!(kind.share() >= 0.9, "{rate}, {name}");
        }
    }
}

/// Until a response has come nothing is known, so nothing is rejected.
#[tokio::test(start_paused = true)]
async fn first_calls_wait_as_long_as_their_deadlines_allow() {
    let load = Load::new(Some(secs(5)));
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        calls.spawn(load.clone().make(secs(1)));
    }
    calls.join_all().await;
    assert_eq!(load.rejected.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn lone_call_is_sent_whatever_responses_usually_take() {
    let load = Load::new(Some(secs(10)));
    for _ in 0..3 {
        assert!(load.clone().make(secs(2)).await);
    }
    let hurried = Load {
        deadline: Some(ms(100)),
        ..load.clone()
    };
    assert!(hurried.clone().make(ms(80)).await);
    assert_eq!(load.slow.sent() + load.quick.sent(), 4);
}

/// The service gets slower than every deadline, then quick again.
#[tokio::test(start_paused = true)]
async fn service_that_was_too_slow_is_tried_again() {
    let load = Load::new(Some(secs(1)));
    let mut rng = Rng::with_seed(5);
    for takes in [ms(80), ms(3_000), ms(80)] {
        load.run(60.0, secs(20), &mut rng, |_| takes).await;
    }
    sleep(secs(2)).await;
    assert!(load.is_healthy(ms(80)).await);
}

/// Half of the calls give no deadline, and none of them is lost.
#[tokio::test(start_paused = true)]
async fn calls_without_a_deadline_are_never_rejected() {
    let hurried = Load::new(Some(secs(1)));
    let patient = Load {
        deadline: None,
        ..hurried.clone()
    };
    let mut calls = JoinSet::new();
    assert!(hurried.clone().make(ms(80)).await);
    for _ in 0..150 {
        calls.spawn(patient.clone().make(ms(80)));
        calls.spawn(hurried.clone().make(ms(80)));
    }
    let answered = calls.join_all().await;
    let answered = answered.into_iter().filter(|answered| *answered).count();
    assert!((150..300).contains(&answered), "{answered}");
    assert_eq!(hurried.quick.sent(), answered + 1);
}

#[tokio::test(start_paused = true)]
async fn rejection_says_how_long_the_queue_is() {
    let load = Load::new(Some(secs(1)));
    assert!(load.clone().make(ms(80)).await);
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        calls.spawn(load.clone().make(ms(80)));
    }
    // All of them have been polled then.
    sleep(ms(1)).await;
    let error = unsent(load.caller.clone().oneshot(request_within(secs(1))).await);
    let error = error.expect("a rejection");
    assert!(error.is_rejected() && error.is_deadline() && !error.was_sent() && !error.is_timeout());
    let text = error.to_string();
    assert!(
        text.starts_with("rejected: the queue for the rate limit is "),
        "{text}"
    );
    assert!(text.contains("calls long, about "), "{text}");
    assert!(
        error.retry_after().is_some_and(|wait| wait > ms(900)),
        "{text}"
    );
}

/// A pause rejects what it cannot answer, as the 429 that it is.
#[tokio::test(start_paused = true)]
async fn pause_beyond_the_deadline_rejects_at_once() {
    let limited = Limited::before(Scripted::pausing(30));
    limited.calls(1).await;
    let layer = &limited.layer;
    let service = layer.layer(limited.service.clone());
    let begin = Instant::now();
    let error = unsent(service.clone().oneshot(request_within(secs(5))).await).expect("a pause");
    assert_eq!(
        (error.cause(), error.is_rejected()),
        (Some(WaitCause::Pause), true)
    );
    assert!(error.is_deadline());
    assert_eq!(error.retry_after(), Some(secs(30)));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    // A call that has the time waits, and is answered.
    let answer = service.oneshot(request_within(secs(40))).await;
    assert!(answer.is_ok());
    assert_eq!(begin.elapsed().as_secs(), 30);
}

/// A quota that opens in a minute is known not to open within two seconds.
#[tokio::test(start_paused = true)]
async fn long_interval_rejects_short_deadlines_at_once() {
    let limits = Limits::new(Quota::per_minute(NonZeroU32::MIN));
    let limited = Limited::new(limits, Scripted::new(ms(20), |_| Answer::ok()));
    limited.calls(1).await;
    let layer = RequestLimitLayer::new(limited.limiter.clone());
    let mut service = layer.layer(limited.service.clone());
    let begin = Instant::now();
    let service = service.ready().await.expect("always ready");
    let error = unsent(service.call(request_within(secs(2))).await).expect("a rejection");
    assert!(error.is_rejected(), "{error}");
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!(limited.service.arrivals().len(), 1);
}
