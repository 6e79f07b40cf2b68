use std::{convert::Infallible, future::ready};

use tower::service_fn;

use super::*;

/// A move of more than 256 bytes costs a call of memcpy, and each body keeps its permit.
#[test]
fn a_waiting_call_adds_72_bytes_and_its_response_64() {
    fn call<S: Service<Request<()>>>(_: fn() -> S) -> usize {
        size_of::<ResponseFuture<S, ()>>()
    }
    let service =
        || service_fn(|_: Request<()>| ready(Ok::<Response<()>, Infallible>(Response::new(()))));
    assert_eq!(call(service) - size_of::<Request<()>>(), 72);
    assert_eq!(size_of::<PermitBody<()>>(), 64);
}
