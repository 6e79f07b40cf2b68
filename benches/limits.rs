//! The request limit over a service that does nothing, compared with tower's limits and governor.
//!
//! `cargo bench -p tds-benches --bench limits`
//!
//! The paused clock needs tokio's `test-util`, which adds a few nanoseconds to each reading of the real
//! clock.

use std::{
    collections::VecDeque,
    hint::black_box,
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use governor::RateLimiter;
use http::Request;
use http_body_util::{Empty, Full};
use tds_benches::{Echo, call};
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, advance},
};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt,
    limit::{ConcurrencyLimit, RateLimit, rate::Rate},
};
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimit, RequestLimitLayer, Rules};

/// The response future of one call.
type Call = <RequestLimit<Echo> as Service<Request<Full<Bytes>>>>::Future;

fn request() -> Request<Empty<Bytes>> {
    Request::new(Empty::new())
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(n.saturating_sub(1))
}

/// Limits whose quota no bench reaches. Its interval is short, so few proofs are kept.
fn wide() -> Limits {
    let short = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    let quota = short.unwrap_or(Quota::per_second(NonZeroU32::MAX));
    Limits::new(quota).in_flight(NonZeroU32::MAX)
}

fn limited(limits: Limits) -> RequestLimit<Echo> {
    RequestLimitLayer::new(Limiter::new(limits)).layer(Echo::new())
}

/// One caller under the real clock, and a limit that is never reached.
fn uncontended(c: &mut Criterion) {
    let mut group = c.benchmark_group("limits/uncontended");
    let mut bare = Echo::new();
    group.bench_function("bare", |b| {
        b.iter(|| call(&mut bare, black_box(request())));
    });
    let mut ours = limited(wide());
    group.bench_function("RequestLimit", |b| {
        b.iter(|| call(&mut ours, black_box(request())));
    });
    let mut window = limited(wide().rules(Rules::window()));
    group.bench_function("RequestLimit, window alone", |b| {
        b.iter(|| call(&mut window, black_box(request())));
    });
    let mut tower = ConcurrencyLimit::new(Echo::new(), 60);
    group.bench_function("tower ConcurrencyLimit", |b| {
        b.iter(|| call(&mut tower, black_box(request())));
    });
    let governor = RateLimiter::direct(governor::Quota::per_second(NonZeroU32::MAX));
    let mut inner = Echo::new();
    group.bench_function("governor check", |b| {
        b.iter(|| {
            let _allowed = black_box(governor.check());
            call(&mut inner, black_box(request()))
        });
    });
    group.finish();
}

/// The least that any limit can cost: it reads the clock for the proof, and takes a lock for the
/// grant and one for the response.
fn floors(c: &mut Criterion) {
    let mut group = c.benchmark_group("limits/floors");
    group.bench_function("a reading of the clock", |b| b.iter(Instant::now));
    let lock = Mutex::new(0_u64);
    group.bench_function("a lock, taken and given back", |b| {
        b.iter(|| drop(black_box(black_box(&lock).lock())));
    });
    group.finish();
}

/// The same calls through a runtime. tower's rate limit needs one: it cannot be cloned, so it is
/// behind a `Buffer` with a task and channels.
fn through_a_runtime(c: &mut Criterion) {
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
        return;
    };
    let mut group = c.benchmark_group("limits/runtime");
    async fn one<S>(service: &mut S)
    where
        S: Service<Request<Empty<Bytes>>>,
    {
        if let Ok(service) = service.ready().await {
            drop(black_box(service.call(request()).await));
        }
    }
    let mut bare = Echo::new();
    group.bench_function("bare", |b| {
        b.iter(|| runtime.block_on(one(&mut bare)));
    });
    let mut ours = limited(wide());
    group.bench_function("RequestLimit", |b| {
        b.iter(|| runtime.block_on(one(&mut ours)));
    });
    let mut stock = {
        let _entered = runtime.enter();
        ServiceBuilder::new()
            .buffer(1_024)
            .layer(tower::limit::ConcurrencyLimitLayer::new(60))
            .service(RateLimit::new(
                Echo::new(),
                Rate::new(u64::MAX, Duration::from_secs(1)),
            ))
    };
    group.bench_function("tower ConcurrencyLimit + RateLimit in a Buffer", |b| {
        b.iter(|| runtime.block_on(one(&mut stock)));
    });
    group.finish();
}

/// A full window: each call comes as soon as a permit is free. The clock is paused. Every row
/// includes the cost of moving it, the bare one as well.
fn at_the_limit(c: &mut Criterion) {
    let Ok(runtime) = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
    else {
        return;
    };
    let mut group = c.benchmark_group("limits/full window");
    let step =
        |n: u32| Duration::from_nanos(1_025_000_000_u64.checked_div(u64::from(n)).unwrap_or(1));
    let mut bare = Echo::new();
    group.bench_function("bare", |b| {
        b.iter(|| {
            runtime.block_on(advance(step(50)));
            call(&mut bare, black_box(request()))
        });
    });
    for n in [50, 1_000, 100_000] {
        let mut ours = limited(Limits::new(Quota::per_second(count(n))));
        group.bench_function(format!("RequestLimit of {n}"), |b| {
            b.iter(|| call_at_the_limit(&runtime, &mut ours, step(n)));
        });
    }
    group.finish();
}

fn call_at_the_limit(runtime: &Runtime, service: &mut RequestLimit<Echo>, step: Duration) {
    let mut cx = Context::from_waker(Waker::noop());
    runtime.block_on(async {
        advance(step).await;
        let mut response = std::pin::pin!(service.call(request()));
        while black_box(response.as_mut().poll(&mut cx)).is_pending() {
            advance(step).await;
        }
    });
}

/// Two threads, each with a clone.
fn two_threads(c: &mut Criterion) {
    fn both<S>(service: &S, iterations: u64) -> Duration
    where
        S: Service<Request<Empty<Bytes>>> + Clone + Send,
    {
        let begin = Instant::now();
        thread::scope(|scope| {
            for _ in 0..2 {
                let mut service = service.clone();
                scope.spawn(move || {
                    for _ in 0..iterations {
                        drop(black_box(call(&mut service, black_box(request()))));
                    }
                });
            }
        });
        begin.elapsed()
    }
    let mut group = c.benchmark_group("limits/two threads");
    group.bench_function("bare", |b| {
        b.iter_custom(|iterations| both(&Echo::new(), iterations));
    });
    let ours = limited(wide());
    group.bench_function("RequestLimit", |b| {
        b.iter_custom(|iterations| both(&ours, iterations));
    });
    let tower = ConcurrencyLimit::new(Echo::new(), 60);
    group.bench_function("tower ConcurrencyLimit", |b| {
        b.iter_custom(|iterations| both(&tower, iterations));
    });
    let governor = Arc::new(RateLimiter::direct(governor::Quota::per_second(
        NonZeroU32::MAX,
    )));
    group.bench_function("governor check", |b| {
        b.iter_custom(|iterations| {
            let checked = tower::service_fn(|request: Request<Empty<Bytes>>| {
                let _allowed = black_box(governor.check());
                Echo::new().call(request)
            });
            both(&checked, iterations)
        });
    });
    group.finish();
}

/// Up to 100,000 calls wait for one slot in flight. Each round frees the slot, gives it to the call in
/// front, and queues one more call.
fn waiters(c: &mut Criterion) {
    // The queue's timer needs a runtime.
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
        return;
    };
    let _entered = runtime.enter();
    let mut group = c.benchmark_group("limits/waiters");
    let mut cx = Context::from_waker(Waker::noop());
    for n in [1, 100_000] {
        let mut service = limited(wide().in_flight(NonZeroU32::MIN));
        let mut unread = Some(call(&mut service, unread_request()));
        let mut waiting: VecDeque<_> = (0..n).map(|_| wait(&mut service, &mut cx)).collect();
        group.bench_function(format!("grant with {n} waiting"), |b| {
            b.iter(|| {
                drop(unread.take());
                let Some(mut next) = waiting.pop_front() else {
                    return;
                };
                if let Poll::Ready(Ok(response)) = Pin::new(&mut next).poll(&mut cx) {
                    unread = Some(response);
                }
                debug_assert!(unread.is_some());
                waiting.push_back(wait(&mut service, &mut cx));
            });
        });
    }
    group.finish();
}

/// Polls a call once, so that it waits.
fn wait(service: &mut RequestLimit<Echo>, cx: &mut Context<'_>) -> Call {
    let mut call = service.call(unread_request());
    let polled = Pin::new(&mut call).poll(cx);
    debug_assert!(polled.is_pending());
    call
}

/// A request whose response has a body: it holds its slot in flight until it is dropped.
fn unread_request() -> Request<Full<Bytes>> {
    Request::new(Full::from("unread"))
}

criterion_group!(
    benches,
    memory_of_waiters, // First, because memory that earlier groups have freed would be used again and not counted.
    uncontended,
    floors,
    through_a_runtime,
    at_the_limit,
    two_threads,
    two_threads_through_a_runtime,
    waiters
);
criterion_main!(benches);

/// Two threads that wait for their responses, so that tower's two limits can be measured: their
/// `Buffer` has one task, here on a third thread, through which all calls go.
fn two_threads_through_a_runtime(c: &mut Criterion) {
    fn both<S>(service: &S, iterations: u64) -> Duration
    where
        S: Service<Request<Empty<Bytes>>> + Clone + Send,
    {
        let begin = Instant::now();
        thread::scope(|scope| {
            for _ in 0..2 {
                let mut service = service.clone();
                scope.spawn(move || {
                    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
                        return;
                    };
                    runtime.block_on(async {
                        for _ in 0..iterations {
                            if let Ok(service) = service.ready().await {
                                drop(black_box(service.call(request()).await));
                            }
                        }
                    });
                });
            }
        });
        begin.elapsed()
    }
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
        return;
    };
    let mut group = c.benchmark_group("limits/two threads, runtime");
    group.bench_function("bare", |b| {
        b.iter_custom(|iterations| both(&Echo::new(), iterations));
    });
    let ours = limited(wide());
    group.bench_function("RequestLimit", |b| {
        b.iter_custom(|iterations| both(&ours, iterations));
    });
    let stock = {
        let _entered = runtime.enter();
        ServiceBuilder::new()
            .buffer(1_024)
            .layer(tower::limit::ConcurrencyLimitLayer::new(60))
            .service(RateLimit::new(
                Echo::new(),
                Rate::new(u64::MAX, Duration::from_secs(1)),
            ))
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = thread::spawn(move || runtime.block_on(stopped));
    group.bench_function("tower ConcurrencyLimit + RateLimit in a Buffer", |b| {
        b.iter_custom(|iterations| both(&stock, iterations));
    });
    drop(stop);
    drop(worker.join());
    group.finish();
}

/// Prints the memory of each of 100,000 calls that wait: its future and its part of the heap. The
/// heap is measured as the growth of the process (on Linux, from `/proc/self/statm`, in pages of 4
/// KiB).
#[expect(
    clippy::print_stderr,
    reason = "criterion has no place for a figure that is no time"
)]
fn memory_of_waiters(_: &mut Criterion) {
    // The queue's timer needs a runtime.
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
        return;
    };
    let _entered = runtime.enter();
    const WAITERS: usize = 100_000;
    fn resident() -> Option<usize> {
        let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
        pages
            .split(' ')
            .nth(1)?
            .parse::<usize>()
            .ok()?
            .checked_mul(4_096)
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut service = limited(wide().in_flight(NonZeroU32::MIN));
    let unread = call(&mut service, unread_request());
    let mut waiting = Vec::with_capacity(WAITERS);
    let before = resident();
    for _ in 0..WAITERS {
        waiting.push(wait(&mut service, &mut cx));
    }
    let own = size_of::<Call>();
    let grown = resident().zip(before);
    let whole = grown.and_then(|(now, before)| now.saturating_sub(before).checked_div(WAITERS));
    let heap = whole.map_or_else(
        || String::from("heap unknown"),
        |whole| format!("{} on the heap", whole.saturating_sub(own)),
    );
    drop(unread);
    eprintln!("limits/waiters: {own} bytes for each call that waits, {heap}");
}
