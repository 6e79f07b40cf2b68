//! The surface: sizes, auto traits, and the code of a user.

use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{Service, ServiceBuilder};
use tower_tds_errors::{
    Classify, ClassifyLayer, Deadline, Error, GiveUp, Guard, GuardBody, GuardLayer, Kind, Retry,
    RetryLayer, Sent,
};

const _: () = assert!(size_of::<Error>() == size_of::<usize>());
const _: () = assert!(size_of::<Result<(), Error>>() == size_of::<usize>());
const _: () = assert!(size_of::<Kind>() == 1);

fn is_plain<T: Send + Sync + Unpin + 'static>() {}

fn is_service<S, B>(_: &S)
where
    S: Service<Request<B>, Response = http::Response<Incoming>, Error = Error> + Clone + Send,
    S::Future: Send + 'static,
{
}

#[test]
fn types_cross_threads() {
    is_plain::<Error>();
    is_plain::<Kind>();
    is_plain::<Sent>();
    is_plain::<GiveUp>();
    is_plain::<RetryLayer>();
    is_plain::<RetryLayer<fn(&Incoming) -> Option<Incoming>>>();
    is_plain::<ClassifyLayer>();
    is_plain::<Retry<Classify<()>>>();
    is_plain::<Guard<()>>();
    is_plain::<GuardLayer>();
    is_plain::<Deadline>();
    // As `Incoming` is: no pin needed to read a frame.
    is_plain::<GuardBody<Full<Bytes>>>();
}

#[test]
fn a_stack_over_hyper_is_built_outside_a_runtime_and_keeps_the_body_type() {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let retry = RetryLayer::new()
        .attempts(NonZeroU32::MIN)
        .deadline(Duration::from_secs(60))
        .longest_wait(Duration::from_secs(5))
        .backoff(Duration::from_millis(50), Duration::from_secs(5));
    let stack = ServiceBuilder::new()
        .layer(retry)
        .layer(ClassifyLayer::new())
        .service(client);
    is_service::<_, Full<Bytes>>(&stack);
}

#[test]
fn bodies_need_not_be_clone_where_none_is_replayed() {
    // `Incoming` is neither `Clone` nor `Sync`.
    let client = Client::builder(TokioExecutor::new()).build_http::<Incoming>();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new().replay(|_: &Incoming| None))
        .layer(ClassifyLayer::new())
        .service(client);
    is_service::<_, Incoming>(&stack);
}
