//! Allocations of a call that succeeds in our layers: those for the copy of a request's head that a retry keeps.
//!
//! `cargo test -p tds-benches --test allocations`
//!
//! The requests have headers already, as those of programs do, and room for another: a map that is
//! empty allocates for its first header, whoever puts it in. What a layer makes once and keeps, such
//! as room for the requests of a window, is made in a first round that is not counted.

#![expect(
    clippy::expect_used,
    reason = "a layer that cannot be set up has no allocations to count"
)]

use std::{hint::black_box, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use tds_benches::{Echo, call, token, whole};
use tower::{ServiceBuilder, util::MapRequest};
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_errors::{ClassifyLayer, Error, GuardLayer, Kind, RetryLayer};
use tower_tds_limits::{Limiter, Limits, Quota, ReadResponse, RequestLimitLayer};

type Body = Full<Bytes>;

/// Calls in a round.
const CALLS: u64 = 100;

/// For the two tables of a header map that the retry keeps of a request.
const COPY: u64 = 2;

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

/// The allocations of a round of calls, after a round that may make what is kept.
///
/// Time is paused, so that what a window holds is the same in every round.
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
fn one_allocation_a_call_is_seen() {
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
fn a_token_allocates_nothing() {
    let runtime = token::runtime();
    let layer = token::layer(&runtime);
    assert_eq!(allocations(|| layer.layer(Echo::new())), 0);
}

#[test]
fn a_place_within_the_limits_allocates_nothing() {
    assert_eq!(allocations(|| limits().layer(Echo::new())), 0);
}

#[test]
fn a_success_is_classified_without_an_allocation() {
    assert_eq!(allocations(|| ClassifyLayer::new().layer(Echo::new())), 0);
}

#[test]
fn a_first_attempt_that_succeeds_allocates_for_the_copy_of_its_head_alone() {
    let service = || RetryLayer::new().layer(ClassifyLayer::new().layer(Echo::new()));
    assert_eq!(allocations(service), COPY * CALLS);
}

#[test]
fn a_body_that_is_read_by_another_thread_allocates_nothing() {
    let mut service = GuardLayer::new().layer(ClassifyLayer::new().layer(Echo::new()));
    let mut round = || {
        let (mut count, mut answers) = (0, Vec::with_capacity(100));
        for _ in 0..CALLS {
            let request = request();
            let called = || answers.push(call(&mut service, request));
            count += allocation_counter::measure(called).count_total;
        }
        std::thread::spawn(|| drop(answers)).join().is_ok() && count == 0
    };
    round();
    assert!(round());
}

#[test]
fn the_layers_together_allocate_for_the_copy_of_a_head_alone() {
    let runtime = token::runtime();
    let token = token::layer(&runtime);
    let service = || {
        ServiceBuilder::new()
            .layer(RetryLayer::new())
            .map_err(|_| Error::new(Kind::Unrecognized, "a bench has no errors"))
            .layer(token)
            .layer(limits().feedback(ReadResponse))
            .layer(ClassifyLayer::new())
            .service(Echo::new())
    };
    assert_eq!(allocations(service), COPY * CALLS);
}

// The metrics of tower-tds allocate their labels, and the programs of the workspace have that feature: this
// one is run with the benches alone.
#[test]
#[ignore = "the workspace's features are not its own"]
fn spans_that_nobody_hears_allocate_nothing_more() {
    let runtime = token::runtime();
    let service = whole::with_spans(&runtime);
    assert_eq!(allocations(|| service), COPY * CALLS);
}
