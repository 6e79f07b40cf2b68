//! Nobody stops anybody else: slow, lost and unpolled calls, and readied ones that are kept.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Empty, combinators::UnsyncBoxBody};
use hyper_util::rt::TokioIo;
use tokio::{
    io::duplex,
    task::JoinSet,
    time::{Instant, advance, sleep, timeout},
};
use tokio_test::{assert_pending, task};
use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService,
};
use tower_tds_limits::{
    Burst, ConnectionLimitLayer, Error, Limiter, Limits, PermitBody, Proof, Quota,
    RequestLimitLayer, Rules, WaitCause,
};

use crate::{
    limited::{Limited, unsent},
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

    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many came in each second from `begin` on.
    fn by_second(&self, begin: Instant, seconds: usize) -> Vec<usize> {
        let arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_second(&arrivals, begin, seconds)
    }
}

/// What a request says of how it is to be answered.
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

/// Ten loops of quick calls; ten others are made after three seconds. Gives how many quick ones came
/// in each second from then on.
async fn beside_ten(fate: Fate, rules: Rules) -> Vec<usize> {
    beside_some(10, fate, rules).await
}

async fn beside_some(others: usize, fate: Fate, rules: Rules) -> Vec<usize> {
    let arrivals = Arrivals::default();
    let noted = arrivals.clone();
    let limiter = Limiter::new(Limits::default().rules(rules));
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
async fn ten_slow_calls_cost_their_own_places_from_the_second_second_on() {
    for fate in [Fate::Slow, Fate::Never] {
        let seconds = beside_ten(fate, Rules::default()).await;
        assert!(seconds[1..].iter().all(|n| *n >= 25), "{seconds:?}");
    }
}

/// Eleven cannot be told from a network that stands still before three seconds are over.
#[tokio::test(start_paused = true)]
async fn more_than_ten_slow_calls_made_together_stop_the_others_for_some_seconds_and_no_longer() {
    for slow in [11, 15, 20, 25] {
        for fate in [Fate::Slow, Fate::Never] {
            let seconds = beside_some(slow, fate, Rules::default()).await;
            assert!(seconds[8..].iter().all(|n| *n >= 15), "{slow}: {seconds:?}");
        }
    }
}

/// A stream of calls that is polled when its consumer has time, as `while let Some(answer) = stream.next()` does.
#[tokio::test(start_paused = true)]
async fn a_stream_of_hundreds_of_calls_that_is_polled_slowly_stops_nobody() {
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
        println!("{calls} {work:?} {seconds:?}");
        assert!(
            seconds[1..12].iter().all(|n| *n >= 20),
            "{calls}: {seconds:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_chosen_burst_keeps_its_proof_whatever_that_costs() {
    let proven = Rules::window().bucket(Burst::Of(9));
    let seconds = beside_ten(Fate::Never, proven).await;
    assert!(seconds[2..].iter().all(|n| *n == 0), "{seconds:?}");
    let larger = Rules::window().bucket(Burst::Of(30));
    let seconds = beside_ten(Fate::Never, larger).await;
    assert!(seconds[1..].iter().all(|n| *n >= 25), "{seconds:?}");
}

/// Thirty loops of calls that are answered after 50 ms, but not while the connections are cut.
async fn while_cut(limits: Limits, error: io::ErrorKind) -> Vec<usize> {
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
    let service = RequestLimitLayer::new(Limiter::new(limits)).layer(service);
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
async fn lost_answers_cost_their_own_places_until_they_can_be_counted_no_more() {
    let seconds = while_cut(Limits::default(), io::ErrorKind::ConnectionReset).await;
    assert!(seconds[2..].iter().all(|n| *n >= 15), "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_connect_costs_no_permit() {
    let seconds = while_cut(Limits::default(), io::ErrorKind::ConnectionRefused).await;
    assert!(seconds[1..].iter().all(|n| *n >= 25), "{seconds:?}");
}

/// How many calls are made in each of sixteen seconds by twenty loops beside whatever `disturb` does.
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

/// Those that are kept for twelve seconds cost the others nothing, then or after.
fn cost_nobody_a_place(seconds: &[usize]) {
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
async fn futures_that_are_polled_once_and_kept_stop_nobody() {
    let seconds = beside(async |limited| {
        let kept: Vec<_> = (0..10)
            .map(|_| poll_once(limited.caller().oneshot(request())))
            .collect();
        sleep(secs(12)).await;
        drop(kept);
    })
    .await;
    cost_nobody_a_place(&seconds);
}

#[tokio::test(start_paused = true)]
async fn waits_that_time_out_on_a_clone_that_is_kept_stop_nobody() {
    let seconds = beside(async |limited| {
        let mut kept: Vec<_> = (0..10).map(|_| limited.caller()).collect();
        for service in &mut kept {
            let ready = Service::<Request<Empty<Bytes>>>::poll_ready;
            let ready = poll_fn(|cx| ready(service, cx));
            drop(timeout(ms(5), ready).await);
        }
        sleep(secs(12)).await;
        drop(kept);
    })
    .await;
    cost_nobody_a_place(&seconds);
}

#[tokio::test(start_paused = true)]
async fn load_shed_over_services_that_live_long_stops_nobody() {
    let seconds = beside(async |limited| {
        let mut kept = Vec::new();
        for _ in 0..10 {
            let mut shed = ServiceBuilder::new().load_shed().service(limited.caller());
            let ready = shed.ready().await.expect("it is always ready");
            drop(ready.call(request()).await);
            kept.push(shed);
        }
        sleep(secs(12)).await;
        drop(kept);
    })
    .await;
    cost_nobody_a_place(&seconds);
}

#[tokio::test(start_paused = true)]
async fn a_buffer_whose_callers_have_gone_stops_nobody() {
    let seconds = beside(async |limited| {
        let mut kept = Vec::new();
        for _ in 0..10 {
            let buffered = ServiceBuilder::new().buffer(1).service(limited.caller());
            let call = timeout(ms(5), buffered.clone().oneshot(request()));
            drop(call.await);
            kept.push(buffered);
        }
        sleep(secs(12)).await;
        drop(kept);
    })
    .await;
    cost_nobody_a_place(&seconds);
}

/// A gateway that takes bursts of ten, a request each 20 ms, and answers after so long.
fn bucket_of_ten(takes: Duration) -> Scripted {
    let mut level = 0.0_f64;
    let mut last = Instant::now();
    Scripted::new(takes, move |_| {
        let now = Instant::now();
        level = (level - (now - last).as_secs_f64() * 50.0).max(0.0);
        last = now;
        if level > 10.0 + 1e-6 {
            return Answer::status(423);
        }
        level += 1.0;
        Answer::ok()
    })
}

#[tokio::test(start_paused = true)]
async fn ten_readied_services_that_are_kept_and_called_together_stop_nobody_and_are_not_refused() {
    let limited = Limited::before(bucket_of_ten(ms(80)));
    let mut tasks = JoinSet::new();
    let stop = Instant::now() + secs(30);
    for _ in 0..20 {
        let caller = limited.caller();
        tasks.spawn(async move {
            let mut refused = 0;
            while Instant::now() < stop {
                let answer = caller.clone().oneshot(request()).await.expect("an answer");
                refused += usize::from(answer.status() == StatusCode::LOCKED);
            }
            refused
        });
    }
    sleep(secs(3)).await;
    let mut kept = Vec::new();
    for _ in 0..10 {
        let mut service = limited.caller();
        service.ready().await.expect("its turn");
        kept.push(service);
    }
    let begin = Instant::now();
    sleep(secs(10)).await;
    let together: Vec<_> = kept
        .iter_mut()
        .map(|service| service.call(request()))
        .collect();
    let mut answers = JoinSet::new();
    for call in together {
        answers.spawn(call);
    }
    for answer in answers.join_all().await {
        assert_eq!(answer.expect("an answer").status(), StatusCode::OK);
    }
    let refused: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(refused, 0);
    let seconds = limited.service.by_second(begin, 16);
    cost_nobody_a_place(&seconds);
}

#[tokio::test(start_paused = true)]
async fn a_try_after_a_429_that_is_never_answered_is_given_up() {
    let limited = Limited::before(Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(429)
        } else {
            Answer::ok()
        }
    }));
    limited.calls(1).await;
    sleep(secs(2)).await;
    // It tries, and is not polled any more.
    let tries = poll_once(limited.caller().oneshot(request()));
    let begin = Instant::now();
    limited.calls(3).await;
    assert!(begin.elapsed() >= secs(29) && begin.elapsed() <= secs(31));
    assert_eq!(limited.limiter.snapshot().paused_for, None);
    drop(tries);
}

#[tokio::test(start_paused = true)]
async fn a_second_of_bad_gateways_costs_no_more_than_their_answers_took() {
    for (status, behind, least) in [(502, None, 25), (504, None, 25), (502, Some(secs(20)), 0)] {
        let begin = Instant::now();
        let mut limits = Limits::default();
        if let Some(behind) = behind {
            limits = limits.counted_behind(behind).rules(Rules::window());
        }
        let service = Scripted::new(ms(20), move |_| {
            let second = (Instant::now() - begin).as_secs();
            if second == 3 {
                Answer::status(status)
            } else {
                Answer::ok()
            }
        });
        let limited = Limited::new(limits, service);
        let mut tasks = JoinSet::new();
        for _ in 0..30 {
            let caller = limited.caller();
            tasks.spawn(async move {
                loop {
                    drop(caller.clone().oneshot(request()).await);
                }
            });
        }
        sleep(secs(12)).await;
        let arrivals = limited.service.arrivals();
        for second in 6..11 {
            let second = begin + secs(second)..begin + secs(second + 1);
            let came = arrivals.iter().filter(|at| second.contains(*at)).count();
            assert!(came >= least, "{status}: {came}");
            if least == 0 {
                assert!(came <= 15, "they are counted for 20 s: {came}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_begins_drained_lets_the_predecessors_interval_pass() {
    let predecessor = Limited::before(Scripted::new(ms(5), |_| Answer::ok()));
    predecessor.calls(50).await;
    let limits = Limits::default().drained();
    let successor = Limited::new(limits, predecessor.service.clone());
    successor.calls(100).await;
    let arrivals = predecessor.service.arrivals();
    let most = arrivals.iter().map(|from| {
        let second = *from..*from + secs(1);
        arrivals.iter().filter(|at| second.contains(*at)).count()
    });
    assert!(most.max() <= Some(50));
    assert!(successor.limiter.snapshot().certificate <= 50);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_idle_beside_a_service_that_is_ready_and_kept() {
    let limited = Limited::before(Scripted::new(ms(700), |_| Answer::ok()));
    let mut kept = limited.caller();
    let ready = ServiceExt::<Request<_>>::ready(&mut kept);
    let kept = ready.await.expect("nobody else calls");
    let idle = timeout(ms(10), limited.limiter.idle()).await;
    idle.expect("nothing was sent");
    kept.call(request()).await.expect("an answer");
    limited.limiter.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_idle_when_nothing_is_in_flight_or_detached() {
    let limited = Limited::before(Scripted::new(ms(700), |_| Answer::ok()));
    limited.limiter.idle().await;
    let begin = Instant::now();
    let detached = ServiceBuilder::new()
        .layer(tower_tds_limits::DetachLayer)
        .service(limited.caller());
    drop(timeout(ms(50), detached.oneshot(request())).await);
    assert_eq!(limited.limiter.snapshot().in_flight, 1);
    limited.limiter.idle().await;
    assert_eq!(begin.elapsed(), ms(700));
    assert_eq!(limited.limiter.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hint_of_all_the_seconds_there_are_is_told_and_shuts_no_gate_for_ever() {
    let limited = Limited::before(Scripted::new(ms(20), |n| {
        if n == 0 {
            Answer::status(429).retry_after_text("18446744073709551615")
        } else {
            Answer::ok()
        }
    }));
    limited.calls(1).await;
    let paused = limited.limiter.snapshot().paused_for;
    assert!(
        paused.is_some_and(|paused| paused >= secs(59)),
        "{paused:?}"
    );
    let told = unsent(limited.caller().oneshot(request()).await).expect("nobody waits a year");
    assert!(
        told.is_rejected() && told.retry_after() > Some(secs(86_400)),
        "{told}"
    );
    sleep(secs(61)).await;
    limited.calls(1).await;
    limited.calls(1).await;
    assert_eq!(limited.limiter.snapshot().paused_for, None);
}

/// Whether nothing but this was waited for, and so long by each who did, in milliseconds.
fn assert_waited(limiter: &Limiter, cause: WaitCause, waits: &[u64]) {
    let longest = waits.iter().max().copied().unwrap_or_default();
    let longest = (waits.len(), ms(waits.iter().sum()), ms(longest));
    for (of, waited) in limiter.snapshot().waits() {
        let count = usize::try_from(waited.count).expect("few");
        let expected = if of == cause {
            longest
        } else {
            Default::default()
        };
        assert_eq!(
            (count, waited.total, waited.longest),
            expected,
            "{of:?} by {cause:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_waited_for_is_counted_by_its_cause() {
    use WaitCause::{Bucket, InFlight, Pause, Silence, Window};
    let two = NonZeroU32::new(2).expect("2 is not zero");
    let rate = |rules| Limits::new(Quota::per_second(two)).rules(rules);
    let quick = || Scripted::new(ms(200), |_| Answer::ok());
    // One after the other, so many call at once, and the last of them wait.
    let waited = async |cause, limits, service, calls: &[usize], waits: &[u64]| {
        let limited = Limited::new(limits, service);
        for calls in calls {
            limited.calls(*calls).await;
        }
        assert_waited(&limited.limiter, cause, waits);
        let granted = usize::try_from(limited.limiter.snapshot().granted).expect("few");
        assert_eq!(granted, calls.iter().sum());
    };
    let limits = Limits::default().in_flight(two).proof(Proof::Head);
    waited(InFlight, limits, quick(), &[6], &[200, 200, 400, 400]).await;
    // A quota's second has two milliseconds more, for clocks that drift, and a timer rounds up.
    let limits = rate(Rules::window());
    waited(Window, limits, quick(), &[5], &[1_202, 1_202, 2_404]).await;
    let limits = rate(Rules::window().bucket(Burst::Of(0)));
    waited(Bucket, limits, quick(), &[2], &[702]).await;
    let (limits, pausing) = (Limits::default(), Scripted::pausing(3));
    waited(Pause, limits, pausing, &[1, 3], &[3_000, 3_020, 3_020]).await;
    let refusing = Scripted::refusing(ms(20), 1, Answer::status(423));
    waited(
        Silence,
        Limits::default(),
        refusing,
        &[1, 2],
        &[1_002, 1_002],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_socket_are_counted() {
    let one = Limits::default().connections(NonZeroU32::MIN);
    let limiter = Limiter::new(one);
    // Whose server has closed already.
    let pipe = service_fn(async |_: Uri| Ok::<_, io::Error>(TokioIo::new(duplex(1).0)));
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(pipe);
    let mut connects = JoinSet::new();
    for _ in 0..3 {
        let connect = connector.clone().oneshot(Uri::from_static("http://a"));
        connects.spawn(async move {
            let socket = connect.await.expect("its turn");
            sleep(ms(200)).await;
            drop(socket);
        });
    }
    connects.join_all().await;
    assert_waited(&limiter, WaitCause::Connection, &[200, 400]);
}

#[tokio::test(start_paused = true)]
async fn it_goes_under_and_over_towers_own_limits_with_boxed_errors_between() {
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
    let retried = ServiceBuilder::new()
        .layer(layer.clone())
        .retry(Never)
        .layer(layer.clone())
        .service(inner());
    retried.oneshot(request()).await.expect("an answer");
    // What may be left out has to answer, and to fail, as what is below it does.
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

/// A policy that retries nothing.
#[derive(Clone)]
struct Never;

impl<T, E> tower::retry::Policy<Request<Empty<Bytes>>, T, E> for Never {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Empty<Bytes>>,
        _: &mut Result<T, E>,
    ) -> Option<Self::Future> {
        None
    }

    fn clone_request(&mut self, _: &Request<Empty<Bytes>>) -> Option<Request<Empty<Bytes>>> {
        None
    }
}

type Limit =
    BoxCloneSyncService<Request<()>, Response<PermitBody<Empty<Bytes>>>, Error<Infallible>>;

/// One request at a time, each of which takes so long. Its arrivals are those of polled futures.
fn one_at_a_time(takes: Duration, max_wait: Option<Duration>) -> (impl Fn() -> Limit, Arrivals) {
    let arrivals = Arrivals::default();
    let noted = arrivals.clone();
    let limits = Limits::default().rules(Rules::window().bucket(Burst::Of(0)));
    let limits = match max_wait {
        Some(wait) => limits.max_wait(wait),
        None => limits,
    };
    let layer = RequestLimitLayer::new(Limiter::new(limits));
    let service = layer.layer(service_fn(move |_request: Request<()>| {
        let noted = noted.clone();
        async move {
            noted.note();
            sleep(takes).await;
            Ok(Response::new(Empty::new()))
        }
    }));
    (move || BoxCloneSyncService::new(service.clone()), arrivals)
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_another_permit_keeps_to_the_longest_wait() {
    let (caller, arrivals) = one_at_a_time(secs(20), Some(secs(1)));
    caller().oneshot(Request::new(())).await.expect("an answer");
    let mut kept = caller();
    kept.ready().await.expect("its turn");
    sleep(ms(100)).await;
    let mut slow = task::spawn(caller().oneshot(Request::new(())));
    assert_pending!(slow.poll());
    let begin = Instant::now();
    let answer = kept.call(Request::new(())).await;
    let Err(Error::Limit(error)) = answer else {
        panic!("no permit comes: {answer:?}");
    };
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.cause(), WaitCause::Bucket);
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert_eq!(arrivals.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_comes_late_for_its_permit_does_not_overtake_another_who_did() {
    let (caller, arrivals) = one_at_a_time(ms(1), None);
    let call = || async { caller().oneshot(Request::new(())).await.expect("an answer") };
    call().await;
    let (mut first, mut second) = (caller(), caller());
    first.ready().await.expect("its turn");
    second
        .ready()
        .await
        .expect("the permit of the first is over");
    sleep(ms(100)).await;
    // By this one the second loses its own.
    call().await;
    let mut first = task::spawn(first.call(Request::new(())));
    assert_pending!(first.poll());
    sleep(ms(23)).await;
    assert!(first.is_woken(), "it is called, and has not looked");
    let mut second = task::spawn(second.call(Request::new(())));
    assert_pending!(second.poll());
    assert_eq!(arrivals.count(), 2);
    assert_pending!(first.poll());
    assert_eq!(arrivals.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_was_readied_before_a_silence_sends_nothing_in_it() {
    let arrivals = Arrivals::default();
    let noted = arrivals.clone();
    let layer = RequestLimitLayer::new(Limiter::new(Limits::default()));
    let service = layer.layer(service_fn(move |_request: Request<()>| {
        let noted = noted.clone();
        async move {
            noted.note();
            let mut response = Response::new(Empty::<Bytes>::new());
            if noted.count() == 1 {
                *response.status_mut() = StatusCode::LOCKED;
            }
            Ok::<_, Infallible>(response)
        }
    }));
    let mut readied = Vec::new();
    for _ in 0..5 {
        let mut service = service.clone();
        service.ready().await.expect("its turn");
        readied.push(service);
    }
    drop(service.clone().oneshot(Request::new(())).await);
    let refused = Instant::now();
    let mut calls: JoinSet<_> = readied
        .into_iter()
        .map(|mut service| async move { service.call(Request::new(())).await.map(drop) })
        .collect();
    sleep(ms(900)).await;
    assert_eq!(arrivals.count(), 1, "it is silent");
    while let Some(call) = calls.join_next().await {
        call.expect("no panic").expect("an answer");
    }
    assert_eq!(arrivals.count(), 6);
    assert!(refused.elapsed() >= secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_504_proves_its_count_a_second_later_and_no_sooner() {
    let one = NonZeroU32::MIN;
    let limits = Limits::new(Quota::per_second(one)).rules(Rules::window());
    let answers = |n| {
        if n == 0 {
            Answer::status(504)
        } else {
            Answer::ok()
        }
    };
    let limited = Limited::new(limits, Scripted::new(ms(20), answers));
    limited.calls(2).await;
    let arrivals = limited.service.arrivals();
    let between = arrivals[1] - arrivals[0];
    // The answer, the second for which it may be counted later, and the interval with its guard.
    assert!((ms(2_022)..ms(2_030)).contains(&between), "{between:?}");
}
