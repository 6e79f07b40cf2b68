//! Allocations of a call that succeeds, in each layer and in all of them.
//!
//! `cargo test -p tds-benches --test allocations -- --include-ignored`
//!
//! The requests have headers and room for more, because an empty map allocates for its first
//! header. The first round is not counted, because in it a layer allocates what it keeps, such as
//! room for the requests of a window.

#![expect(
    clippy::expect_used,
    reason = "a layer that cannot be set up has no allocations to count"
)]

use std::{
    future::Future as _,
    hint::black_box,
    num::NonZeroU32,
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use tds_benches::{Echo, call, token, whole};
use tower::{ServiceBuilder, util::MapRequest};
use tower_layer::Layer;
use tower_service::Service;
use tower_tds::{Client, Credentials};
use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer};
use tower_tds_limits::{Limiter, Limits, Quota, RequestLimitLayer};

type Body = Full<Bytes>;

/// Calls in a round.
const CALLS: u64 = 100;

/// Futures of a call through a retry layer, which callers move as one pointer, and of its attempt.
const FUTURE: u64 = 2;

/// Allocation of Retry for the copy of the request's head: a list of its headers.
const COPY: u64 = 1;

/// Allocations of Retry for the deadline, an extension of the request: the map of extensions, its
/// table, and the boxed value.
const DEADLINE: u64 = 3;

/// Allocation of `RequestLimit` for its call, which a task may take over.
const LIMIT: u64 = 1;

/// Allocation of `RequestLimit` for the hand-over, which is a part of the deadline.
const HAND_OVER: u64 = 1;

/// Allocations of all layers.
const ALL: u64 = FUTURE + COPY + DEADLINE + LIMIT + HAND_OVER;

fn request() -> Request<Body> {
    let mut request = token::request();
    let headers = request.headers_mut();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(
        header::CONTENT_ENCODING,
        HeaderValue::from_static("br,gzip"),
    );
    request
}

fn limits() -> RequestLimitLayer {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    let wide = wide.expect("a millisecond is an interval");
    RequestLimitLayer::new(Limiter::new(Limits::new(wide)))
}

/// Counts the allocations of a round of calls, after a round that is not counted.
///
/// Time is paused, so that a window holds the same number of permits in every round.
fn allocations<S>(make: impl FnOnce() -> S) -> u64
where
    S: Service<Request<Body>>,
{
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut service = make();
        round(&mut service).await;
        round(&mut service).await
    })
}

async fn round<S>(service: &mut S) -> u64
where
    S: Service<Request<Body>>,
{
    let mut count = 0_u64;
    for _ in 0..CALLS {
        // Permits come back after 2.5 ms.
        tokio::time::advance(Duration::from_millis(1)).await;
        let request = request();
        let info = allocation_counter::measure(|| drop(call(service, request)));
        count = count.saturating_add(info.count_total);
    }
    count
}

#[test]
fn allocation_counter_counts_one_allocation_per_call() {
    let boxing = MapRequest::new(Echo::new(), |request: Request<Body>| {
        black_box(Box::new(0_u8));
        request
    });
    assert_eq!(allocations(|| boxing), CALLS);
}

#[test]
fn a_service_that_does_nothing_allocates_nothing() {
    assert_eq!(allocations(Echo::new), 0);
}

#[test]
fn token_layer_allocates_nothing() {
    let runtime = token::runtime();
    let layer = token::layer(&runtime);
    assert_eq!(allocations(|| layer.layer(Echo::new())), 0);
}

#[test]
fn permitted_request_allocates_only_for_its_call() {
    assert_eq!(allocations(|| limits().layer(Echo::new())), LIMIT * CALLS);
}

#[test]
fn a_success_is_classified_without_an_allocation() {
    assert_eq!(allocations(|| ClassifyLayer::new().layer(Echo::new())), 0);
}

#[test]
#[ignore = "the workspace turns on metrics, whose labels allocate"]
fn first_attempt_allocates_for_its_future_head_copy_and_deadline() {
    let service = || RetryLayer::new().layer(ClassifyLayer::new().layer(Echo::new()));
    assert_eq!(allocations(service), (FUTURE + COPY + DEADLINE) * CALLS);
}

#[test]
#[ignore = "the workspace turns on metrics, whose labels allocate"]
fn all_layers_allocate_only_for_future_head_deadline_and_limit() {
    let runtime = token::runtime();
    let token = token::layer(&runtime);
    let service = || {
        ServiceBuilder::new()
            .layer(RetryLayer::new())
            .map_err(|_| Error::new(Kind::Unrecognized, "a bench has no errors"))
            .layer(limits())
            .layer(token)
            .layer(ClassifyLayer::new())
            .service(Echo::new())
    };
    assert_eq!(allocations(service), ALL * CALLS);
}

/// A move of more than 256 bytes costs 64 to 76 instructions, and a smaller one 29.
#[test]
fn response_and_future_of_the_stack_are_small() {
    let runtime = token::runtime();
    let mut service = whole::with_spans(&runtime);
    let (response, future) = sizes(&mut service);
    eprintln!("response: {response} bytes, future: {future} bytes");
    assert!(response <= 256, "{response}");
    assert!(future <= 16, "{future}");
}

/// What a call holds while it waits for its permit, and a client with TLS while it has no call.
#[test]
fn a_waiting_call_and_an_idle_client_are_small() {
    let runtime = token::runtime();
    let _guard = runtime.enter();
    let token = token::layer(&runtime);
    let slow = Quota::new(NonZeroU32::MIN, Duration::from_secs(10)).expect("an interval");
    let limit = RequestLimitLayer::new(Limiter::new(Limits::new(slow)));
    let mut service = ServiceBuilder::new()
        .layer(RetryLayer::new().deadline_kept_below())
        .map_err(|_| Error::new(Kind::Unrecognized, "a bench has no errors"))
        .layer(limit)
        .layer(token)
        .layer(ClassifyLayer::new().below_retry())
        .service(Echo::new());
    let mut cx = Context::from_waker(Waker::noop());
    // The first call takes the permit, and the second one allocates the queue and its timer.
    let mut others: Vec<_> = [(), ()].map(|()| Box::pin(service.call(request()))).into();
    for call in &mut others {
        let _polled = call.as_mut().poll(&mut cx);
    }
    let mut waiting = None;
    let held = allocation_counter::measure(|| {
        let mut call = service.call(request());
        let polled = Pin::new(&mut call).poll(&mut cx);
        assert!(polled.is_pending(), "it waits");
        waiting = Some(call);
    });
    let (bytes, blocks) = (held.bytes_current, held.count_current);
    eprintln!("a waiting call: {bytes} bytes in {blocks} blocks");
    assert!(bytes <= 2_400 && blocks <= 10, "{bytes} in {blocks}");

    let mut client = None;
    let held = allocation_counter::measure(|| {
        let credentials = Credentials::new("id", "s3cr3t").expect("usable");
        let (auth, data) = ("https://auth.example.org", "https://data.example.org");
        client = Client::builder(auth, data, credentials).build().ok();
    });
    assert!(client.is_some(), "this machine has root certificates");
    eprintln!("an idle client: {} bytes", held.bytes_current);
    assert!(held.bytes_current <= 90_000, "{held:?}");
}

fn sizes<S: Service<Request<Body>>>(service: &mut S) -> (usize, usize) {
    let future = service.call(request());
    (size_of::<S::Response>(), size_of_val(&future))
}

// The programs of the workspace turn on the feature `metrics` of tower-tds, whose labels allocate. Run this
// test with `cargo test -p tds-benches --test allocations -- --ignored`.
#[test]
#[ignore = "the workspace turns on other features"]
fn spans_without_a_subscriber_do_not_allocate() {
    let runtime = token::runtime();
    let service = whole::with_spans(&runtime);
    assert_eq!(allocations(|| service), ALL * CALLS);
}
