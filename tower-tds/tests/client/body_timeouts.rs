//! Bodies that end early, stall or trickle end within the bounds of the client, under paused time.

use std::{future::ready, io, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, pause, resume, sleep, timeout};
use tower::service_fn;
use tower_tds::{Client, Kind, RequestBody, layers::errors::GiveUp};

use crate::client::world::{Built as _, PATH, builder, faults, faulty};

/// A wait in seconds, and the piece of a body after it.
type Step = (u64, &'static str);

/// A client whose responses have a body of these steps, over and over if it is endless.
fn client(steps: &'static [Step], is_endless: bool) -> Client {
    Client::from_service(service_fn(move |request: Request<RequestBody>| {
        assert_eq!(request.headers()["authorization"], "Bearer fake");
        assert_eq!(request.uri(), "https://localhost/v1/live/bus");
        let rounds = if is_endless { usize::MAX } else { 1 };
        let steps = (0..rounds).flat_map(move |_| steps).copied();
        let frames = stream::iter(steps).then(|(wait, piece)| async move {
            if wait > 0 {
                sleep(seconds(wait)).await;
            }
            Ok::<_, io::Error>(Frame::data(Bytes::from(piece)))
        });
        let body = StreamBody::new(Box::pin(frames));
        ready(Ok::<_, io::Error>(Response::new(body)))
    }))
}

const FLOWS: &[Step] = &[(0, "x")];
const PAUSES: &[Step] = &[(0, "bus"), (20, ".")];
const SLEEPS: &[Step] = &[(0, "one"), (1_000, "two")];
const TWICE: &[Step] = &[(0, "bus"), (0, ".")];

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn body_without_pauses_ends_at_the_deadline() {
    let client = client(FLOWS, true);
    let response = client.get(PATH).deadline(seconds(2)).await;
    let mut body = response.expect("a head");
    assert!(body.chunk().await.is_ok());
    sleep(seconds(2)).await;
    let error = body.chunk().await.expect_err("the deadline has passed");
    assert_eq!(error.kind(), Kind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn read_timeout_starts_when_the_reader_waits() {
    let client = client(SLEEPS, false);
    let response = client.get(PATH).await.expect("a head");
    let mut body = response.into_http().into_body();
    assert!(body.frame().await.is_some());
    // A slow reader causes no read timeout.
    sleep(seconds(600)).await;
    let start = Instant::now();
    let error = body.frame().await.expect("an end").expect_err("of silence");
    assert_eq!(start.elapsed(), seconds(30));
    assert_eq!(error.kind(), Kind::Truncated);
    assert!(error.to_string().contains(" after 3 "), "{error}");
    assert!(error.is_timeout() && error.is_retryable());
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn each_wait_has_the_whole_read_timeout() {
    let mut body = client(PAUSES, true).get(PATH).await.expect("a head");
    for _ in 0..6 {
        assert!(body.chunk().await.expect("20 s are short").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn buffered_bytes_precede_a_fired_read_timeout() {
    // The wait for the second piece sets the timer, which fires while the reader is away.
    let client = client(PAUSES, false);
    let mut body = client.get(PATH).await.expect("a head");
    assert!(body.chunk().await.is_ok());
    timeout(seconds(1), body.chunk())
        .await
        .expect_err("a pause");
    sleep(seconds(600)).await;
    assert_eq!(body.chunk().await.expect("data").expect("a piece"), ".");
    assert!(matches!(body.chunk().await, Ok(None)));
}

#[tokio::test(start_paused = true)]
async fn body_end_may_be_read_after_the_deadline() {
    let client = client(TWICE, false);
    let response = client.get(PATH).deadline(seconds(5)).await;
    let mut body = response.expect("a head");
    assert!(body.chunk().await.is_ok() && body.chunk().await.is_ok());
    sleep(seconds(6)).await;
    assert!(matches!(body.chunk().await, Ok(None)));
}

/// `Sync`, so that a task can hold a reference to it across an await.
#[test]
fn bodies_calls_and_the_client_are_send_and_sync() {
    fn is_plain<T: Send + Sync + 'static>() {}
    is_plain::<tower_tds::Response>();
    is_plain::<RequestBody>();
    is_plain::<Client>();
    is_plain::<tower::util::Oneshot<Client, Request<()>>>();
}

/// tower-http's timeout answers with the default of the body below it.
#[tokio::test]
async fn default_body_is_complete_and_holds_nothing() {
    let body = tower_tds::ResponseBody::default();
    assert!(Body::is_end_stream(&body));
    let read = body.collect().await;
    assert!(read.expect("a whole body").to_bytes().is_empty());
}

#[tokio::test]
async fn stalled_or_dripping_body_over_a_socket_ends_within_its_bounds_coded_or_plain() {
    let (server, _) = faulty(&["data=stall:600s"]).await;
    let own = || builder(&server);
    let drips = "/v1/history/day?bytes=4000000&rate=1000";
    let rest = Some("the rest of the body");
    let late = (Kind::Timeout, Some(GiveUp::Deadline), rest);
    let silent = (Kind::Truncated, None, None);
    for (builder, path, by_call, within, expected) in [
        (own(), PATH, true, 20, late),
        (own().deadline(seconds(20)), PATH, false, 20, late),
        (own().read_timeout(seconds(90)), PATH, false, 90, silent),
        (own(), drips, true, 20, late),
        (own().compression(), drips, true, 20, late),
    ] {
        if path == drips {
            server.sim().set_faults(faults(&[]));
        }
        let client = builder.built();
        client.tokens().ready().await.expect("a token");
        let mut call = client.get(path);
        if by_call {
            call = call.deadline(seconds(20));
        }
        let start = Instant::now();
        let head = call.await.expect("a head");
        // From here on the time passes only in the stall.
        pause();
        let error = head.bytes().await.expect_err("it takes minutes");
        resume();
        let ended = (error.kind(), error.gave_up(), error.waited_for());
        assert_eq!(ended, expected);
        // The rest is what this machine took until the pause.
        let took = start.elapsed().as_secs();
        assert!((within..within + 10).contains(&took), "{took}");
        assert!(!error.to_string().contains(" after 0 "), "{error}");
        // The failed body releases its permit.
        client.limiter().idle().await;
    }
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.complete), (5, 0));
}
