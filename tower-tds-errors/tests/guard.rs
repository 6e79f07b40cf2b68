//! The bodies of successes that break off or stall, in memory and over sockets.
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]

#[path = "wire/server.rs"]
#[expect(dead_code, reason = "the other tests need more of its acts")]
mod server;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use server::{Act, Server};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};
use tower_tds_errors::{
    Bodies, ClassifyLayer, Error, GuardBody, GuardLayer, Kind, Retried, RetryLayer, Stop,
};

/// Says these, one a poll, and then nothing, or that it ends.
struct Said {
    pieces: VecDeque<&'static str>,
    announced: Option<u64>,
    hangs: bool,
}

impl Body for Said {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))),
            None if self.hangs => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.announced
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

async fn answer(
    pieces: &[&'static str],
    announced: Option<u64>,
    hangs: bool,
) -> Response<GuardBody<Said>> {
    let pieces = pieces.iter().copied().collect();
    let body = Said {
        pieces,
        announced,
        hangs,
    };
    let body = Mutex::new(Some(body));
    let service = tower::service_fn(|_: Request<()>| {
        let body = body.lock().unwrap().take().unwrap();
        std::future::ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let stack = ServiceBuilder::new()
        .layer(GuardLayer::new().idle(Duration::from_secs(5)))
        .layer(ClassifyLayer::new());
    stack
        .service(service)
        .oneshot(Request::new(()))
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_early_is_truncated_with_received_and_expected() {
    let body = answer(&["one", "two"], Some(10), false).await.into_body();
    assert!(body.is_verifiable() && !body.is_end_stream());
    let error = body.collect().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Truncated);
    assert_eq!((error.received(), error.expected()), (Some(6), Some(10)));
    assert_eq!(
        error.to_string(),
        "the answer ended early after 6 of 10 bytes; fetch it again, and discard the part"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_whole_passes_byte_for_byte() {
    for announced in [Some(6), None] {
        let body = answer(&["one", "", "two"], announced, false)
            .await
            .into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "onetwo");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_says_nothing_for_the_idle_limit_stalls() {
    let mut body = answer(&["one"], None, true).await.into_body();
    body.frame().await.unwrap().unwrap();
    // A slow reader is no stall.
    sleep(Duration::from_secs(60)).await;
    let start = Instant::now();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.received()), (Kind::Stalled, Some(3)));
    assert!(error.is_timeout() && error.is_retryable());
    assert_eq!(
        (start.elapsed(), error.expected()),
        (Duration::from_secs(5), None)
    );
    assert!(body.frame().await.is_none() && body.is_end_stream());
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A body of ten bytes of which three come, one poll late, and then what `last` says.
struct Late {
    polls: u32,
    last: fn() -> Polled,
}

impl Body for Late {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.polls += 1;
        match self.polls {
            1 => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            2 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"one"))))),
            _ => (self.last)(),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.polls > 2
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(10)
    }
}

async fn late(bodies: &Bodies, last: fn() -> Polled) -> GuardBody<Late> {
    let service = tower::service_fn(move |_: Request<()>| {
        std::future::ready(Ok::<_, BoxError>(Response::new(Late { polls: 0, last })))
    });
    let layer = GuardLayer::new()
        .idle(Duration::from_secs(5))
        .bodies(bodies.clone());
    let response = layer.layer(service).oneshot(Request::new(())).await;
    response.unwrap().into_body()
}

#[tokio::test(start_paused = true)]
async fn a_silence_begins_when_it_is_waited_for_again() {
    let mut body = late(&Bodies::new(), || Poll::Pending).await;
    body.frame().await.unwrap().unwrap();
    sleep(Duration::from_secs(60)).await;
    let start = Instant::now();
    assert_eq!(
        body.frame().await.unwrap().unwrap_err().kind(),
        Kind::Stalled
    );
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_has_ended_is_not_open_though_it_is_still_held() {
    let incomplete = || {
        let error = Error::new(Kind::Incomplete, "closed");
        Poll::Ready(Some(Err(BoxError::from(error))))
    };
    for last in [|| Poll::Ready(None), incomplete] {
        let bodies = Bodies::new();
        let mut body = late(&bodies, last).await;
        body.frame().await.unwrap().unwrap();
        assert_eq!((bodies.open(), body.is_end_stream()), (1, false));
        // After the head an answer is cut short, whatever its client calls it.
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Truncated);
        assert_eq!((bodies.open(), body.is_end_stream()), (0, true));
    }
    let bodies = Bodies::new();
    let layer = GuardLayer::new().bodies(bodies.clone());
    let whole = tower::service_fn(|_: Request<()>| {
        let body = Full::<Bytes>::from("bus");
        std::future::ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let response = layer.layer(whole).oneshot(Request::new(())).await;
    let mut body = response.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.is_none());
    assert_eq!(bodies.open(), 0);
}

async fn over_a_socket(bytes: &str) -> (bool, Result<Bytes, Error>) {
    let server = Server::start(Act::WriteAndClose(bytes.into())).await;
    let service = GuardLayer::new().layer(ClassifyLayer::new().layer(server::client()));
    let request = Request::get(server.uri()).body(Full::default()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(
        (response.version(), server.requests(), server.connections()),
        (Version::HTTP_11, 1, 1)
    );
    let verifiable = response.body().is_verifiable();
    let body = response.into_body().collect().await;
    (verifiable, body.map(|body| body.to_bytes()))
}

#[tokio::test]
async fn an_answer_cut_off_on_the_wire_is_truncated_however_it_is_framed() {
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    for (answer, expected) in [(length, Some(100)), (chunks, None)] {
        let (verifiable, outcome) = over_a_socket(answer).await;
        let error = outcome.unwrap_err();
        assert!(verifiable);
        assert_eq!(error.kind(), Kind::Truncated, "{error:?}");
        assert_eq!((error.received(), error.expected()), (Some(4), expected));
    }
}

#[tokio::test]
async fn an_answer_cut_off_after_its_head_is_not_asked_for_again_by_the_retry_layer() {
    for reset in [false, true] {
        let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
        let server = Server::start(if reset {
            Act::WriteAndReset(half)
        } else {
            Act::WriteAndClose(half)
        });
        let server = server.await;
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new())
            .layer(GuardLayer::new())
            .layer(ClassifyLayer::new())
            .service(server::client());
        let request = Request::get(server.uri()).body(Full::default()).unwrap();
        let response = stack.oneshot(request).await.unwrap();
        let error = response.into_body().collect().await.map(drop).unwrap_err();
        let broken = matches!(error.kind(), Kind::Truncated | Kind::BodyReset);
        assert!(broken && error.is_retryable(), "{error:?}");
        assert_eq!((server.connections(), server.requests()), (1, 1));
    }
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_marked() {
    let (verifiable, body) = over_a_socket("HTTP/1.1 200 OK\r\n\r\nhalf, or all").await;
    assert!(!verifiable);
    assert_eq!(body.unwrap(), "half, or all");
}

/// Refuses all but one at a time, as a service with one connection does.
#[tokio::test(start_paused = true)]
async fn a_call_refused_for_its_connections_waits_until_one_of_our_bodies_ends() {
    let bodies = Bodies::new();
    let served = Arc::new(Mutex::new(Vec::new()));
    let (open, seen) = (bodies.clone(), Arc::clone(&served));
    let service = tower::service_fn(move |_: Request<()>| {
        seen.lock().unwrap().push(Instant::now());
        let status = if open.open() < 2 { 200 } else { 416 };
        let body = Response::builder()
            .status(status)
            .body(Full::<Bytes>::from("bus"));
        std::future::ready(Ok::<_, BoxError>(body.unwrap()))
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new().bodies(bodies.clone()))
        .layer(GuardLayer::new().bodies(bodies.clone()))
        .layer(ClassifyLayer::new())
        .service(service);
    let call = || stack.clone().oneshot(Request::new(()));
    let (first, second) = (call().await.unwrap(), call().await.unwrap());
    assert_eq!(bodies.open(), 2);
    // One that ended before anybody waited frees nobody who waits later.
    drop(first);
    let first = call().await.unwrap();
    let start = Instant::now();
    let waiting = [tokio::spawn(call()), tokio::spawn(call())];
    sleep(Duration::from_secs(20)).await;
    assert_eq!(
        served.lock().unwrap().len(),
        5,
        "both were refused, and wait"
    );
    // A body that is read to its end, and one that is dropped.
    first.into_body().collect().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(served.lock().unwrap().len(), 6, "each end lets one go on");
    drop(second);
    for call in waiting {
        let response = call.await.unwrap().unwrap();
        assert_eq!(
            response.extensions().get().map(|r: &Retried| r.attempts()),
            Some(2)
        );
    }
    assert!(start.elapsed() < Duration::from_secs(22));
    assert_eq!(bodies.open(), 0);
    // Where none is open there is nothing to wait for but time.
    let alone = tower::service_fn(|_: Request<()>| {
        let refused = Response::builder()
            .status(416)
            .body(Full::<Bytes>::default());
        std::future::ready(Ok::<_, BoxError>(refused.unwrap()))
    });
    let layer = RetryLayer::new().bodies(bodies);
    let error = layer
        .layer(ClassifyLayer::new().layer(alone))
        .oneshot(Request::new(()))
        .await;
    assert!(error.unwrap_err().elapsed() < Some(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn other_failures_wait_for_no_body() {
    let bodies = Bodies::new();
    let service = tower::service_fn(|request: Request<()>| {
        let status = if request.uri() == "/held" { 200 } else { 503 };
        let answer = Response::builder().status(status);
        std::future::ready(Ok::<_, BoxError>(
            answer.body(Full::<Bytes>::from("bus")).unwrap(),
        ))
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new().bodies(bodies.clone()))
        .layer(GuardLayer::new().bodies(bodies))
        .layer(ClassifyLayer::new())
        .service(service);
    let held = Request::get("/held").body(()).unwrap();
    let held = stack.clone().oneshot(held).await.unwrap();
    let error = stack.oneshot(Request::new(())).await.unwrap_err();
    assert_eq!(error.attempts(), 3);
    assert!(error.elapsed() < Some(Duration::from_secs(1)));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_body_is_given_up_at_its_deadline_and_goes_on_without_one() {
    for (deadline, stop, elapsed) in [
        (10, Stop::Deadline, 10..11),
        // Two waits of 30 s for a body that does not end.
        (100, Stop::Attempts, 60..61),
    ] {
        let bodies = Bodies::new();
        let refusing = tower::service_fn(|request: Request<()>| {
            let status = if request.uri() == "/held" { 200 } else { 416 };
            let answer = Response::builder()
                .status(status)
                .body(Full::<Bytes>::from("bus"));
            std::future::ready(Ok::<_, BoxError>(answer.unwrap()))
        });
        let stack = ServiceBuilder::new()
            .layer(
                RetryLayer::new()
                    .bodies(bodies.clone())
                    .deadline(Duration::from_secs(deadline)),
            )
            .layer(GuardLayer::new().bodies(bodies))
            .layer(ClassifyLayer::new())
            .service(refusing);
        let held = Request::get("/held").body(()).unwrap();
        let held = stack.clone().oneshot(held).await.unwrap();
        let error = stack.oneshot(Request::new(())).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.stopped_because()),
            (Kind::ConnectionLimit, Some(stop))
        );
        assert!(
            elapsed.contains(&error.elapsed().unwrap().as_secs()),
            "{error:?}"
        );
        drop(held);
    }
}
