//! The bodies of successes that break off or stall, in memory and over sockets.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::server::{self, Act, Server};
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};
use tower_tds_errors::{
    ClassifyLayer, Deadline, Error, GiveUp, GuardBody, GuardLayer, Kind, RetryLayer,
};

/// Yields these pieces, one a poll, and then hangs or ends.
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
    assert_eq!(error.received(), Some(6));
    assert!(
        error.to_string().contains(" after 6 of 10 bytes"),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "GET /: the answer broke off: fewer bytes came than were announced after 6 of 10 bytes; \
         fetch it again, and discard the part"
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
    assert_eq!((error.kind(), error.received()), (Kind::Truncated, Some(3)));
    assert!(error.is_timeout() && error.is_retryable());
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert!(body.frame().await.is_none() && body.is_end_stream());
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A body of ten bytes of which three come, one poll late, and then the result of `last`.
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

async fn late(last: fn() -> Polled) -> GuardBody<Late> {
    let service = tower::service_fn(move |_: Request<()>| {
        std::future::ready(Ok::<_, BoxError>(Response::new(Late { polls: 0, last })))
    });
    let layer = GuardLayer::new().idle(Duration::from_secs(5));
    let response = layer.layer(service).oneshot(Request::new(())).await;
    response.unwrap().into_body()
}

#[tokio::test(start_paused = true)]
async fn a_silence_begins_when_it_is_waited_for_again() {
    let mut body = late(|| Poll::Pending).await;
    body.frame().await.unwrap().unwrap();
    sleep(Duration::from_secs(60)).await;
    let start = Instant::now();
    assert_eq!(
        body.frame().await.unwrap().unwrap_err().kind(),
        Kind::Truncated
    );
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_has_ended_though_it_is_still_held() {
    let incomplete = || {
        let error = Error::new(Kind::Reset, "closed");
        Poll::Ready(Some(Err(BoxError::from(error))))
    };
    for last in [|| Poll::Ready(None), incomplete] {
        let mut body = late(last).await;
        body.frame().await.unwrap().unwrap();
        assert!(!body.is_end_stream());
        // After the head an answer is cut short, whatever its client calls it.
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Truncated);
        assert!(body.is_end_stream());
    }
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
    for (answer, came) in [
        (length, " after 4 of 100 bytes"),
        (chunks, " after 4 bytes"),
    ] {
        let (verifiable, outcome) = over_a_socket(answer).await;
        let error = outcome.unwrap_err();
        assert!(verifiable);
        assert_eq!(error.kind(), Kind::Truncated, "{error:?}");
        assert_eq!(error.received(), Some(4));
        assert!(error.to_string().contains(came), "{error}");
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
        assert_eq!(error.kind(), Kind::Truncated, "{error:?}");
        assert_eq!((server.connections(), server.requests()), (1, 1));
    }
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_marked() {
    for coding in [
        "",
        "transfer-encoding: gzip\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{coding}\r\nhalf, or all");
        let (verifiable, body) = over_a_socket(&answer).await;
        assert!(!verifiable, "{coding}");
        assert_eq!(body.unwrap(), "half, or all");
    }
}

/// A byte at each of these distances, for ever.
struct Drip(Pin<Box<tokio::time::Sleep>>, Duration);

impl Body for Drip {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Byte>> {
        std::task::ready!(self.0.as_mut().poll(cx));
        self.0 = Box::pin(sleep(self.1));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

type Byte = Result<Frame<Bytes>, BoxError>;

fn dripping(
    gap: Duration,
) -> impl Clone
+ Send
+ tower::Service<Request<()>, Response = Response<Drip>, Error = BoxError, Future: Send> {
    tower::service_fn(move |_: Request<()>| {
        let body = Drip(Box::pin(sleep(gap)), gap);
        std::future::ready(Ok::<_, BoxError>(Response::new(body)))
    })
}

#[tokio::test(start_paused = true)]
async fn a_drip_is_cut_at_the_deadline_that_counts_until_the_end_of_the_body() {
    for gap in [Duration::from_millis(300), Duration::from_secs(29)] {
        let deadline = Deadline::after(Duration::from_secs(40)).whole();
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new().deadline(deadline))
            .layer(GuardLayer::new())
            .layer(ClassifyLayer::new())
            .service(dripping(gap));
        let start = Instant::now();
        let response = stack.oneshot(Request::new(())).await.unwrap();
        let error = response.into_body().collect().await.map(drop).unwrap_err();
        assert_eq!(
            (error.kind(), error.gave_up()),
            (Kind::Timeout, Some(GiveUp::Deadline))
        );
        assert_eq!(error.waited_for(), Some("the rest of the body"));
        assert_eq!(start.elapsed(), Duration::from_secs(40));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_came_in_time_is_whole_however_late_its_end_is_asked_for() {
    for announced in [Some(4), None] {
        let said = move |_: Request<()>| {
            let pieces = VecDeque::from(["bus", "."]);
            let hangs = false;
            std::future::ready(Ok::<_, BoxError>(Response::new(Said {
                pieces,
                announced,
                hangs,
            })))
        };
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new().deadline(Deadline::after(Duration::from_secs(5)).whole()))
            .layer(GuardLayer::new())
            .layer(ClassifyLayer::new())
            .service(tower::service_fn(said));
        let mut body = stack.oneshot(Request::new(())).await.unwrap().into_body();
        for _ in 0..2 {
            body.frame().await.unwrap().unwrap();
        }
        sleep(Duration::from_secs(6)).await;
        let end = body.frame().await;
        // Without an announced length, it is unknown whether the whole body came in time.
        assert_eq!(end.is_none(), announced.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_416_beside_a_long_open_body_is_tried_again_by_backoff() {
    let service = tower::service_fn(|request: Request<()>| {
        let status = if request.uri() == "/held" { 200 } else { 416 };
        let answer = Response::builder().status(status);
        std::future::ready(Ok::<_, BoxError>(
            answer.body(Full::<Bytes>::from("bus")).unwrap(),
        ))
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(GuardLayer::new())
        .layer(ClassifyLayer::new())
        .service(service);
    let held = Request::get("/held").body(()).unwrap();
    let held = stack.clone().oneshot(held).await.unwrap();
    let error = stack.oneshot(Request::new(())).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::ConnectionLimit, 3));
    assert!(error.elapsed() < Some(Duration::from_secs(1)));
    drop(held);
}
