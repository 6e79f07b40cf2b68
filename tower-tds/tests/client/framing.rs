//! Requests, as a server reads them: their framing by the body, whatever the caller set, and their codings.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request};
use http_body::Frame;
use http_body_util::{Empty, Full, StreamBody};
use tower::ServiceExt as _;
use tower_tds::{Client, Kind, RequestBody, layers::errors::GiveUp};

use crate::client::{
    raw::{Raw, answer, say, values},
    world::Built as _,
};

async fn service() -> (Raw, Client) {
    let raw = Raw::saying(answer("200 OK", "ok")).await;
    let client = raw.client();
    (raw, client)
}

fn streamed(chunks: &'static [&'static str]) -> RequestBody {
    let frame = |chunk: &&'static str| Ok::<_, io::Error>(Frame::data(Bytes::from(*chunk)));
    RequestBody::stream(StreamBody::new(stream::iter(chunks.iter().map(frame))))
}

fn request(method: Method, length: &str, body: RequestBody) -> Request<RequestBody> {
    let request = Request::builder().method(method).uri("/v1/x");
    let request = request.header("content-length", length).body(body);
    request.expect("a request")
}

#[tokio::test]
async fn announced_length_is_that_of_the_body_or_nothing_is_sent() {
    let (raw, client) = service().await;
    let evil = RequestBody::from("GET /evil HTTP/1.1\r\n\r\n");
    let whole = || RequestBody::stream(Full::<Bytes>::from("abc"));
    for (method, length, body) in [
        (Method::GET, "24", RequestBody::default()),
        (Method::PUT, "4", whole()),
        (Method::POST, "0", evil),
    ] {
        let error = client.request(request(method, length, body)).await;
        let error = error.expect_err(length);
        assert_eq!(error.kind(), Kind::InvalidRequest, "{error}");
    }
    assert!(raw.calls().is_empty());

    for (method, length, body, sent) in [
        (Method::GET, "0", RequestBody::default(), None),
        (Method::PUT, "3", "abc".into(), Some("3")),
        (Method::PUT, "3", whole(), Some("3")),
        (Method::PUT, "6", streamed(&["abc", "def"]), Some("6")),
    ] {
        let called = client.request(request(method, length, body)).await;
        called.expect("it is sent");
        let head = raw.calls().pop().expect("it came");
        assert_eq!(values(&head, "content-length"), Vec::from_iter(sent));
        assert!(values(&head, "transfer-encoding").is_empty(), "{head}");
    }
}

#[tokio::test]
async fn stream_of_another_length_never_becomes_the_next_request() {
    for chunks in [
        &["abc"][..],
        &["abc", "defGET /evil HTTP/1.1\r\nhost: d\r\n\r\n"],
    ] {
        let (raw, client) = service().await;
        let ended = client
            .request(request(Method::PUT, "6", streamed(chunks)))
            .await;
        assert!(ended.is_err() || chunks.len() == 2);
        client.get("/v1/next").await.expect("another connection");
        let calls = raw.calls();
        let last = calls.last().expect("the next call");
        assert!(last.starts_with("GET /v1/next HTTP/1.1\r\n"), "{calls:?}");
        assert!(
            calls.iter().all(|call| !call.starts_with("GET /evil")),
            "{calls:?}"
        );
    }
}

#[tokio::test]
async fn headers_of_the_callers_connection_are_not_passed_on() {
    let (raw, client) = service().await;
    for body in [RequestBody::default(), "abc".into(), streamed(&["abc"])] {
        let mut request = Request::put("/v1/x").body(body).expect("a request");
        for (name, value) in [
            ("connection", "upgrade, x-hop"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "gzip, chunked"),
            ("upgrade", "websocket"),
            ("x-hop", "1"),
            ("x-stays", "1"),
        ] {
            let value = value.parse().expect("a value");
            request.headers_mut().insert(name, value);
        }
        client.request(request).await.expect("it is sent");
        let head = raw.calls().pop().expect("it came");
        for gone in ["connection", "keep-alive", "te", "upgrade", "x-hop"] {
            assert!(values(&head, gone).is_empty(), "{gone}: {head}");
        }
        let codings = values(&head, "transfer-encoding");
        assert!(codings.iter().all(|coding| *coding == "chunked"), "{head}");
        assert_eq!(values(&head, "x-stays"), ["1"]);
    }
}

/// Returns 503 to the first request, and accepts the others.
async fn busy_once() -> (Raw, Client) {
    let raw = Raw::start(|asked| {
        let status = if asked.call == 1 { "503 No" } else { "200 OK" };
        vec![say(answer(status, ""))]
    });
    let raw = raw.await;
    let client = raw.client();
    (raw, client)
}

/// The bodies that came.
fn bodies(raw: &Raw) -> Vec<String> {
    let body = |call: &String| call.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    raw.calls().iter().filter_map(body).collect()
}

async fn is_replayed<B: Into<RequestBody>>(body: B, bytes: &str) {
    let (raw, client) = busy_once().await;
    let request = Request::put("/").body(body).expect("a request");
    let taken = client.oneshot(request).await;
    assert_eq!(taken.expect(bytes).status(), 200);
    assert_eq!(bodies(&raw), [bytes; 2]);
}

#[tokio::test]
async fn buffered_body_of_each_type_is_replayed_unchanged() {
    is_replayed(RequestBody::stream(Empty::<Bytes>::new()), "").await;
    is_replayed((), "").await;
    is_replayed(Empty::<Bytes>::new(), "").await;
    is_replayed("bytes", "bytes").await;
    is_replayed(String::from("bytes"), "bytes").await;
    is_replayed(Bytes::from_static(b"bytes"), "bytes").await;
    is_replayed(b"bytes".to_vec(), "bytes").await;
    is_replayed(Full::<Bytes>::from("bytes"), "bytes").await;
}

#[tokio::test]
async fn streamed_request_is_sent_once_and_not_replayed() {
    let (raw, client) = busy_once().await;
    let once = RequestBody::stream(Full::<Bytes>::from("once"));
    let request = Request::put("/").body(once).expect("a request");
    let error = client.request(request).await.expect_err("it is busy");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.gave_up(), Some(GiveUp::NotReplayable));
    assert!(format!("{error:#}").contains("body"), "{error:#}");
    assert_eq!(bodies(&raw), ["once"]);
}

#[tokio::test]
async fn codings_are_asked_for_unless_the_request_names_some_or_a_range() {
    const BOTH: &str = "br,gzip";
    const GZIP: Option<&str> = Some("gzip");
    let raw = Raw::saying(answer("200 OK", "")).await;
    let client = raw.builder().compression().built();
    for (method, (name, value), content, accept) in [
        ("GET", ("x", ""), Some(BOTH), Some(BOTH)),
        ("HEAD", ("x", ""), Some(BOTH), Some(BOTH)),
        ("GET", ("range", "bytes=5-8"), None, Some("identity")),
        ("POST", ("x", ""), None, Some(BOTH)),
        ("POST", ("content-encoding", "gzip"), GZIP, Some(BOTH)),
        ("GET", ("content-encoding", "gzip"), GZIP, None),
        ("GET", ("accept-encoding", "zstd"), None, Some("zstd")),
    ] {
        let request = Request::builder()
            .method(method)
            .uri("/")
            .header(name, value);
        let call = client.request(request.body(()).expect("a request"));
        call.deadline(Duration::from_secs(60))
            .await
            .expect("it is sent");
        let head = raw.calls().pop().expect("it came");
        let sent = |name| values(&head, name).first().copied();
        let sent = (sent("content-encoding"), sent("accept-encoding"));
        assert_eq!(sent, (content, accept), "{method} {name}: {head}");
    }
}
