use std::{
    future::{Ready, poll_fn, ready},
    io,
    task::Poll,
};

use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, duplex};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Layer, Service, service_fn};

use super::BackgroundTask;
use crate::{ConnectionLimit, ConnectionLimitLayer, LimitError, Limiter, Limits};

type Connecting = Ready<io::Result<TokioIo<DuplexStream>>>;
type Connector = ConnectionLimit<tower::util::ServiceFn<fn(()) -> Connecting>>;

/// One connector that has the only permit, and one that has none.
fn connectors() -> (Connector, Connector) {
    let one = std::num::NonZeroU32::MIN;
    let limiter = Limiter::new(Limits::default().connections(one));
    let connect: fn(()) -> Connecting = |()| ready(Ok(TokioIo::new(duplex(64).0)));
    let mut first = ConnectionLimitLayer::new(limiter).layer(service_fn(connect));
    let second = first.clone();
    assert_ready_ok!(task::spawn(poll_fn(|cx| first.poll_ready(cx))).poll());
    (first, second)
}

/// Whether it is ready, as a new task in the background sees it.
fn is_ready_in_background(connector: &mut Connector) -> bool {
    let task = poll_fn(|cx| Poll::Ready(connector.poll_ready(cx).is_ready()));
    assert_ready!(task::spawn(BackgroundTask { task }).poll())
}

#[tokio::test(start_paused = true)]
async fn what_begins_in_the_background_waits_in_whichever_task_it_is_polled() {
    let (first, mut second) = connectors();
    assert!(!is_ready_in_background(&mut second));
    // As a body of HTTP/2 that was moved to a task of its own.
    assert!(!is_ready_in_background(&mut second));
    drop(first);
    assert!(is_ready_in_background(&mut second));
    second.call(()).await.expect("a socket");
}

#[tokio::test(start_paused = true)]
async fn what_was_left_to_the_background_ends_in_place_of_waiting() {
    let (_first, mut second) = connectors();
    assert_pending!(task::spawn(poll_fn(|cx| second.poll_ready(cx))).poll());
    assert!(is_ready_in_background(&mut second));
    let error = second.call(()).await.expect_err("nobody waits for it");
    assert!(error.downcast_ref::<LimitError>().is_some(), "{error}");
    // Its next connect begins anew.
    assert!(!is_ready_in_background(&mut second));
}
