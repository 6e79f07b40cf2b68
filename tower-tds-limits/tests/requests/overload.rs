//! Load beyond the quota, from callers with deadlines: what is sent is answered, and nothing starves.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use tokio::{
    task::JoinSet,
    time::{Instant, Sleep, sleep, sleep_until, timeout_at},
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_tds_limits::{
    DeadlineAt, Error, Limiter, Limits, PermitBody, Proof, RequestLimitLayer, WaitCause,
};
use tower_tds_outcome::{HandOver, Handed};

use crate::requests::{
    bounds::request_until,
    limited::{Limited, unsent},
    ms, secs,
    service::Scripted,
};

type Caller = BoxCloneSyncService<Request<Empty<Bytes>>, Response<PermitBody<Late>>, Error>;

/// Calls of one kind: how many a second at random times, in which time, and how long the service takes
/// for head and body.
#[derive(Clone, Copy)]
struct Kind {
    rate: f64,
    deadline: Option<Duration>,
    takes: Times,
}

/// Times of head and body, in milliseconds.
type Times = fn(&mut Rng) -> (u64, u64);

/// What the service saw of one kind, and what its callers got in time.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    made: usize,
    sent: usize,
    answered: usize,
}

/// Body that ends after a time.
struct Late(Pin<Box<Sleep>>);

/// A number of a kind, and times, which a call carries to the service.
#[derive(Debug, Clone, Copy)]
struct Takes(usize, Duration, Duration);

/// One limiter and its service.
#[derive(Clone)]
struct Load {
    limiter: Limiter,
    caller: Caller,
    counts: Arc<Mutex<Vec<Counts>>>,
}

// === impl Load ===

impl Load {
    fn new() -> Self {
        Self::within(Limits::default())
    }

    fn within(limits: Limits) -> Self {
        let limiter = Limiter::new(limits);
        let counts = Arc::new(Mutex::new(vec![Counts::default(); 4]));
        let seen = Arc::clone(&counts);
        let service = service_fn(move |request: Request<Empty<Bytes>>| {
            let mut hand_over = HandOver::of(request.extensions());
            assert!(hand_over.mark(Handed::Held) && hand_over.mark(Handed::Taken));
            let Takes(kind, head, body) = *request.extensions().get().expect("its times");
            seen.lock().expect("no panic")[kind].sent += 1;
            async move {
                sleep(head).await;
                Ok::<_, Infallible>(Response::new(Late(Box::pin(sleep(body)))))
            }
        });
        Self {
            caller: Caller::new(RequestLimitLayer::new(limiter.clone()).layer(service)),
            limiter,
            counts,
        }
    }

    fn counts(&self, kind: usize) -> Counts {
        self.counts.lock().expect("no panic")[kind]
    }

    /// Makes one call, which includes its body. Returns whether it was answered in time.
    async fn call(self, number: usize, deadline: Option<Duration>, takes: (u64, u64)) -> bool {
        self.read_after(Duration::ZERO, number, deadline, takes)
            .await
    }

    /// The same with a reader that leaves the body alone for so long.
    async fn read_after(
        self,
        pause: Duration,
        number: usize,
        deadline: Option<Duration>,
        (head, body): (u64, u64),
    ) -> bool {
        self.counts.lock().expect("no panic")[number].made += 1;
        let ends = Instant::now() + deadline.unwrap_or(secs(86_400));
        let mut request = Request::new(Empty::new());
        if deadline.is_some() {
            let mut at = DeadlineAt::new(ends.into_std());
            at.covers_body = true;
            request.extensions_mut().insert(at);
        }
        request
            .extensions_mut()
            .insert(Takes(number, ms(head), ms(body)));
        let Ok(response) = self.caller.oneshot(request).await else {
            return false;
        };
        let read = async {
            sleep(pause).await;
            response.into_body().collect().await
        };
        let answered = timeout_at(ends, read).await.is_ok();
        self.counts.lock().expect("no panic")[number].answered += usize::from(answered);
        answered
    }

    /// Makes the calls of all kinds for so long, and waits for the answers.
    async fn run(&self, kinds: &[Kind], lasts: Duration, seed: u64) {
        let mut loads = JoinSet::new();
        for (number, kind) in kinds.iter().copied().enumerate() {
            let load = self.clone();
            loads.spawn(async move {
                let mut rng = Rng::with_seed(seed + number as u64);
                let (begin, mut at) = (Instant::now(), Duration::ZERO);
                let mut calls = JoinSet::new();
                while at < lasts {
                    sleep_until(begin + at).await;
                    calls.spawn(
                        load.clone()
                            .call(number, kind.deadline, (kind.takes)(&mut rng)),
                    );
                    at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / kind.rate);
                }
                if kind.deadline.is_some() {
                    calls.join_all().await;
                }
            });
        }
        loads.join_all().await;
    }

    /// Whether all calls are answered if one comes every 50 ms.
    async fn is_healthy(&self, takes: (u64, u64)) -> bool {
        let mut calls = JoinSet::new();
        for _ in 0..40 {
            calls.spawn(Self::call(self.clone(), 3, Some(secs(1)), takes));
            sleep(ms(50)).await;
        }
        calls.join_all().await.into_iter().all(|answered| answered)
    }
}

// === impl Late ===

impl Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.0.as_mut().poll(cx));
        Poll::Ready(None)
    }
}

fn kind(rate: f64, deadline: u64, takes: Times) -> Kind {
    Kind {
        rate,
        deadline: Some(ms(deadline)),
        takes,
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_under_overload_is_answered_bodies_too() {
    let times: [Times; 9] = [
        |_| (5, 0),
        |_| (80, 0),
        |rng| (rng.u64(40..300), 0),
        |_| (600, 0),
        |_| (80, 40),
        |rng| (80, rng.u64(0..80)),
        |_| (80, 400),
        |rng| (rng.u64(5..300), rng.u64(0..400)),
        |_| (300, 600),
    ];
    let mut below = Vec::new();
    for (nth, takes) in times.into_iter().enumerate() {
        for (rate, deadline) in [
            (45.0, 1_000),
            (60.0, 1_000),
            (60.0, 2_000),
            (120.0, 1_000),
            (120.0, 2_000),
        ] {
            let without = Load::new();
            let all = Kind {
                deadline: None,
                ..kind(rate, 0, takes)
            };
            without.run(&[all], secs(60), 7).await;
            let possible = without.counts(0).sent as f64;
            let load = Load::new();
            load.run(&[kind(rate, deadline, takes)], secs(60), 7).await;
            let Counts { sent, answered, .. } = load.counts(0);
            let case =
                format!("{nth}, {rate}/s, {deadline} ms: {answered} of {sent} of {possible}");
            if (answered as f64) < 0.93 * sent as f64 || (sent as f64) < 0.85 * possible {
                below.push(case.clone());
            }
            sleep(secs(2)).await;
            assert!(
                load.is_healthy(takes(&mut Rng::with_seed(1))).await,
                "{case}"
            );
            assert_eq!(load.limiter.snapshot().waiting, 0, "{case}");
        }
    }
    assert!(below.is_empty(), "below the bars:\n{}", below.join("\n"));
}

/// For each mix the least answers a second of each kind.
#[tokio::test(start_paused = true)]
async fn kinds_of_calls_beside_each_other_are_all_answered() {
    let quick = |_: &mut Rng| (80, 0);
    for (kinds, least) in [
        // The first ones cannot be answered.
        (
            [
                kind(30.0, 500, |_| (800, 0)),
                kind(30.0, 5_000, |_| (800, 0)),
            ],
            [0.0, 26.0],
        ),
        (
            [kind(54.0, 1_000, quick), kind(6.0, 10_000, |_| (2_000, 0))],
            [21.6, 2.4],
        ),
        (
            [kind(5.0, 1_000, quick), kind(55.0, 60_000, quick)],
            [3.5, 30.0],
        ),
    ] {
        let load = Load::new();
        load.run(&kinds, secs(120), 3).await;
        let rates = [0, 1].map(|kind| load.counts(kind).answered as f64 / 120.0);
        println!("{rates:?}");
        assert!(rates[0] >= least[0] && rates[1] >= least[1], "{rates:?}");
    }
}

/// Some readers take longer than their deadline, and one comes after each gap. That is their own time, and not the service's.
#[tokio::test(start_paused = true)]
async fn quick_readers_are_answered_beside_slow_ones() {
    let by_end = Limits::default().proof(Proof::End).lost_after(ms(0));
    for (limits, gap, least) in [(Limits::default(), 167, 38), (by_end, 40, 23)] {
        let load = Load::within(limits);
        let others = load.clone();
        let slow = tokio::spawn(async move {
            let mut calls = JoinSet::new();
            loop {
                let call = others.clone();
                calls.spawn(call.read_after(secs(2), 1, Some(secs(1)), (80, 40)));
                sleep(ms(gap)).await;
            }
        });
        load.run(&[kind(54.0, 1_000, |_| (80, 40))], secs(60), 3)
            .await;
        slow.abort();
        let (quick, slow) = (load.counts(0), load.counts(1));
        assert!(quick.answered >= least * 60, "{quick:?} beside {slow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn short_deadlines_are_met_beside_two_hundred_bulk_tasks_that_go_on() {
    let load = Load::new();
    let mut bulk = JoinSet::new();
    for _ in 0..200 {
        let load = load.clone();
        bulk.spawn(async move {
            loop {
                Load::call(load.clone(), 1, None, (80, 0)).await;
            }
        });
    }
    load.run(&[kind(5.0, 1_000, |_| (80, 0))], secs(60), 3)
        .await;
    let (short, bulk) = (load.counts(0), load.counts(1));
    assert!(
        short.answered as f64 >= 0.97 * short.made as f64,
        "{short:?}"
    );
    assert!(bulk.answered >= 30 * 60, "{bulk:?}");
}

#[tokio::test(start_paused = true)]
async fn lone_call_is_sent_whatever_responses_usually_take() {
    let load = Load::new();
    for _ in 0..3 {
        assert!(Load::call(load.clone(), 0, Some(secs(10)), (2_000, 0)).await);
    }
    assert!(Load::call(load.clone(), 0, Some(ms(100)), (80, 0)).await);
    assert_eq!(load.counts(0).sent, 4);
}

/// The service gets slower than every deadline, then quick again.
#[tokio::test(start_paused = true)]
async fn service_that_was_too_slow_is_tried_again() {
    let load = Load::new();
    let quick = |_: &mut Rng| (80, 0);
    for takes in [
        quick,
        |_: &mut Rng| (3_000, 0),
        quick,
        |_: &mut Rng| (80, 3_000),
        quick,
    ] {
        let before = load.counts(0);
        load.run(&[kind(60.0, 1_000, takes)], secs(20), 5).await;
        let Counts { sent, answered, .. } = load.counts(0);
        println!("{} of {}", answered - before.answered, sent - before.sent);
    }
    sleep(secs(2)).await;
    assert!(load.is_healthy((80, 0)).await);
    let Counts { sent, answered, .. } = load.counts(0);
    println!("{answered} of {sent}");
}

/// A pause rejects what it cannot answer, as the 429 that it is.
#[tokio::test(start_paused = true)]
async fn pause_beyond_the_deadline_rejects_at_once() {
    let limited = Limited::before(Scripted::pausing(30));
    limited.calls(1).await;
    let layer = &limited.layer;
    let service = layer.layer(limited.service.clone());
    let begin = Instant::now();
    let error = unsent(
        service
            .clone()
            .oneshot(request_until(Instant::now() + secs(5)))
            .await,
    )
    .expect("a pause");
    assert_eq!(
        (error.cause(), error.is_rejected()),
        (Some(WaitCause::Pause), true)
    );
    assert!(error.is_deadline());
    assert_eq!(error.retry_after(), Some(secs(30)));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    // A call that has the time waits, and is answered.
    let answer = service
        .oneshot(request_until(Instant::now() + secs(40)))
        .await;
    assert!(answer.is_ok());
    assert_eq!(begin.elapsed().as_secs(), 30);
}
