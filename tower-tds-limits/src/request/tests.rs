use std::{
    convert::Infallible,
    future::{Future as _, ready},
    pin::Pin,
    task::{Context, Waker},
};

use tokio_test::assert_ready_ok;
use tower::service_fn;

use super::*;
use crate::{clock::tests::READS, limiter::Limiter, limits::Limits, wait::tests::sync::LOCKS};

/// The locks and the readings of the clock in one call, while none waits.
fn costs<S>(service: &mut S) -> [(usize, usize); 3]
where
    S: Service<Request<String>, Response = Response<PermitBody<String>>, Error = Error>,
    S::Future: Unpin,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut last = (LOCKS.get(), READS.get());
    let mut count = || {
        let now = (LOCKS.get(), READS.get());
        let counted = (now.0 - last.0, now.1 - last.1);
        last = now;
        counted
    };
    let mut call = service.call(Request::new(String::from("bus")));
    let response = assert_ready_ok!(Pin::new(&mut call).poll(&mut cx));
    let head = count();
    drop(call);
    let end_of_call = count();
    drop(response);
    [head, end_of_call, count()]
}

/// A call that is sent and answered in one poll takes one lock and one reading of the clock for
/// each. The end of the body takes one lock.
#[test]
fn a_call_takes_three_locks_and_reads_the_clock_twice() {
    let inner = service_fn(|_: Request<String>| {
        ready(Ok::<_, Infallible>(Response::new(String::from("307"))))
    });
    let layer = RequestLimitLayer::new(Limiter::new(Limits::default()));
    assert_eq!(costs(&mut layer.layer(inner)), [(2, 2), (0, 0), (1, 0)]);
}

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
