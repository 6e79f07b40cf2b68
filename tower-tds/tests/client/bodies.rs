//! Bodies that end early, stall, or block other calls, and bodies as text and as JSON, by a server that writes raw bytes.

use std::time::Duration;

use tokio::time::{pause, resume, sleep};
use tower_tds::{Error, Kind, Limits, Response, layers::errors::RetryLayer};

use crate::client::{
    raw::{Raw, answer},
    world::{Built as _, count},
};

/// The response of these bytes, after which the server closes the connection.
async fn response_of(bytes: impl Into<Vec<u8>>) -> Response {
    let client = Raw::saying(bytes).await.client();
    client.get("/close").await.expect("the head of a success")
}

async fn text_of(kind: &str, body: impl AsRef<[u8]>) -> Result<String, Error> {
    let response = response_of(answer(&format!("200 OK\r\ncontent-type: {kind}"), body));
    response.await.text().await
}

/// In a report of many calls, an error shows which one failed.
fn assert_named(error: &Error, kind: Kind) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(
        error.to_string().starts_with("GET http://127.0.0.1:"),
        "{error}"
    );
}

const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn truncated_body_error_has_received_and_announced_lengths() {
    let chunks = format!("{CHUNKED}4\r\nhalf\r\n");
    for (answer, came) in [
        (LENGTH, " after 4 of 100 bytes"),
        (&*chunks, " after 4 bytes"),
    ] {
        let raw = Raw::saying(answer).await;
        let head = raw.client().get("/close").await.expect("a head");
        let error = head.bytes().await.expect_err("it breaks off");
        assert_named(&error, Kind::Truncated);
        assert_eq!(error.received(), Some(4));
        assert!(error.to_string().contains(came), "{error}");
        assert!(error.is_retryable(), "by its caller, who has the part");
        assert_eq!(raw.seen(), ["POST", "t1"], "by nobody else");
    }
}

#[tokio::test]
async fn body_is_read_to_the_end_that_its_head_announces() {
    let empty = format!("{CHUNKED}0\r\n\r\n");
    for (answer, whole) in [
        ("HTTP/1.1 200 OK\r\n\r\nhalf, or all", "half, or all"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""),
        (&empty, ""),
    ] {
        let body = response_of(answer).await.bytes().await;
        assert_eq!(body.expect("nothing tells otherwise"), whole);
    }
}

#[tokio::test]
async fn folded_header_line_becomes_a_space() {
    let response = response_of(answer("200 OK\r\nx-note: folded\r\n\tonce", "ok")).await;
    let note = response.headers()["x-note"].to_str().expect("text");
    // RFC 9112, section 5.2.
    let words: Vec<_> = note.split_whitespace().collect();
    assert_eq!(words, ["folded", "once"]);
}

#[tokio::test]
async fn unrequested_upgrade_is_an_error() {
    let raw = Raw::saying("HTTP/1.1 101 Switching Protocols\r\nupgrade: other\r\n\r\n").await;
    let error = raw.client().get("/").await.expect_err("2xx or 304");
    assert_eq!(error.kind(), Kind::UnexpectedResponse);
}

#[tokio::test]
async fn call_without_a_deadline_waits_for_a_download_to_end() {
    let raw = Raw::saying(LENGTH).await;
    // Three data sockets, which are all in use.
    let limits = Limits::default().connections(count(4));
    let retry = RetryLayer::new().deadline(Duration::MAX);
    let client = raw.builder().limits(limits).retry(retry).built();
    let mut held = Vec::new();
    while held.len() < 3 {
        held.push(client.get("/hold").await.expect("the head of a success"));
    }
    let call = tokio::spawn(client.get("/hold").into_future());
    pause();
    sleep(Duration::from_secs(600)).await;
    assert!(!call.is_finished());
    let now = client.limiter().snapshot();
    assert_eq!(
        (now.in_flight, now.waiting, now.connects_waiting),
        (3, 1, 0)
    );
    resume();
    held.pop();
    call.await.expect("no panic").expect("its turn");
    assert_eq!(raw.seen(), ["POST", "t1", "t1", "t1", "t1"]);
}

const TAIPEI: &str = "\u{53f0}\u{5317}";

#[tokio::test]
async fn byte_order_mark_is_no_part_of_text_and_json() {
    let body = format!("\u{feff}{{\"stop\":\"{TAIPEI}\"}}");
    let json = response_of(answer("200 OK", &body)).await.json().await;
    let json: serde_json::Value = json.expect("JSON");
    assert_eq!(json["stop"], TAIPEI);
    for kind in [
        "application/json",
        "text/plain; charset=UTF-8",
        "text/plain; charset=big5",
    ] {
        let text = text_of(kind, &body).await.expect("text");
        assert!(text.starts_with("{\"stop\""), "{kind}: {text:?}");
    }
    // A second byte-order mark is a character.
    let text = text_of("text/plain", "\u{feff}\u{feff}").await;
    assert_eq!(text.expect("text"), "\u{feff}");
}

#[tokio::test]
async fn text_is_decoded_from_its_charset() {
    for (kind, body, whole) in [
        ("text/csv; charset=Big5", &b"\xa5x\xa5_"[..], TAIPEI),
        ("text/csv;a=b;CHARSET=\"big5\"", b"\xa5x\xa5_", TAIPEI),
        ("text/csv; charset=utf-16le", b"\xf0\x53\x17\x53", TAIPEI),
        ("text/csv; charset=utf-8", TAIPEI.as_bytes(), TAIPEI),
        ("text/csv", TAIPEI.as_bytes(), TAIPEI),
        ("text/csv; charset=iso-8859-1", b"Z\xfcrich", "Zürich"),
        // ASCII is the same in each charset.
        ("text/plain; charset=x-own", b"Zurich\r\n", "Zurich\r\n"),
    ] {
        assert_eq!(text_of(kind, body).await.expect(kind), whole, "{kind}");
    }
    let error = text_of("text/plain; charset=x-own", b"Z\xfcrich").await;
    let error = error.expect_err("nobody knows it");
    assert_named(&error, Kind::Malformed);
    assert!(
        error.to_string().contains("the charset \"x-own\""),
        "{error}"
    );
}

#[tokio::test]
async fn body_that_is_too_large_or_of_another_type_is_a_named_error() {
    let large = response_of("HTTP/1.1 200 OK\r\ncontent-length: 67108865\r\n\r\n").await;
    let error = large.bytes().await.expect_err("it is larger");
    assert_named(&error, Kind::TooLarge);
    let text = ": response is too large: it has more than 64 MiB; read it in parts, with `chunk`";
    assert!(error.to_string().ends_with(text), "{error}");
    let other = response_of(answer("200 OK", "{}")).await;
    let error = other.json::<Vec<u8>>().await.expect_err("it is not a list");
    assert_named(&error, Kind::Malformed);
}

#[tokio::test]
async fn the_body_of_an_error_is_read_within_the_bounds_of_the_builder() {
    let raw = Raw::saying(answer("422 Unprocessable Content", [b'x'; 60_000])).await;
    let wide = raw.builder().error_bodies(64 << 10, Duration::from_secs(9));
    for (client, read) in [(raw.client(), 16 << 10), (wide.built(), 60_000)] {
        let error = client.get("/close").await.expect_err("a 422");
        let cut = (error.body().len(), error.is_body_cut());
        assert_eq!(cut, (read, read < 60_000));
    }
}
