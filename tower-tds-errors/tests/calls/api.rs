//! The surface: sizes, auto traits, and the code of a user.

use http::Request;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, Service};
use tower_tds_errors::{
    Classify, ClassifyLayer, DeadlineAt, Error, GiveUp, Kind, Retry, RetryLayer, Sent,
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
    is_plain::<DeadlineAt>();
}

#[test]
fn question_mark_converts_io_errors() {
    fn job() -> Result<(), Error> {
        std::fs::read("/no/such/file")?;
        Ok(())
    }
    fn boxed() -> Result<(), Box<dyn std::error::Error>> {
        Ok(job()?)
    }
    let error = job().unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    assert!(boxed().is_err());
}

#[test]
fn body_without_clone_is_accepted_if_not_replayed() {
    // `Incoming` is neither `Clone` nor `Sync`.
    let client = Client::builder(TokioExecutor::new()).build_http::<Incoming>();
    let stack = RetryLayer::new()
        .replay(|_: &Incoming| None)
        .layer(ClassifyLayer::new().layer(client));
    is_service::<_, Incoming>(&stack);
}
