//! Bodies as text and as JSON: byte-order marks, charsets, and bodies that are too large, those of errors as well.

use std::time::Duration;

use tower_tds::{Client, Credentials, Error, Kind, Response};

use crate::client::server::Server;

async fn response_of(kind: &str, body: &[u8]) -> Response {
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
    answered(&[head.as_bytes(), body].concat()).await
}

async fn answered(answer: &[u8]) -> Response {
    let server = Server::start(answer).await;
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    let client = Client::builder(&server.url(), &server.url(), credentials).loopback_http();
    let client = client.build().expect("loopback is let through");
    client.get("/close").await.expect("a success")
}

async fn text_of(kind: &str, body: &[u8]) -> Result<String, Error> {
    response_of(kind, body).await.text().await
}

#[tokio::test]
async fn byte_order_mark_is_no_part_of_text_and_json() {
    let body = "\u{feff}{\"stop\":\"\u{53f0}\u{5317}\"}".as_bytes();
    let json: serde_json::Value = response_of("application/json", body)
        .await
        .json()
        .await
        .expect("JSON");
    assert_eq!(json["stop"], "\u{53f0}\u{5317}");
    for kind in [
        "application/json",
        "text/plain; charset=UTF-8",
        "text/plain; charset=big5",
    ] {
        let text = text_of(kind, body).await.expect("text");
        assert!(text.starts_with("{\"stop\""), "{kind}: {text:?}");
    }
    // A second byte-order mark is a character.
    let text = text_of("text/plain", "\u{feff}\u{feff}".as_bytes()).await;
    assert_eq!(text.expect("text"), "\u{feff}");
}

#[tokio::test]
async fn text_is_decoded_from_its_charset() {
    for (kind, body) in [
        ("text/csv; charset=Big5", &b"\xa5x\xa5_"[..]),
        ("text/csv;header=present;CHARSET=\"big5\"", b"\xa5x\xa5_"),
        ("text/csv; charset=utf-16le", b"\xf0\x53\x17\x53"),
        ("text/csv; charset=utf-8", "\u{53f0}\u{5317}".as_bytes()),
        ("text/csv", "\u{53f0}\u{5317}".as_bytes()),
    ] {
        let text = text_of(kind, body).await.expect(kind);
        assert_eq!(text, "\u{53f0}\u{5317}", "{kind}");
    }
    let text = text_of("text/plain; charset=iso-8859-1", b"Z\xfcrich").await;
    assert_eq!(text.expect("text"), "Z\u{fc}rich");
}

#[tokio::test]
async fn unknown_charset_is_an_error_that_names_it() {
    let error = text_of("text/plain; charset=x-own", b"Z\xfcrich").await;
    let error = error.expect_err("nobody knows it");
    assert_eq!(error.kind(), Kind::Malformed);
    is_named(&error);
    assert!(
        error.to_string().contains("the charset \"x-own\""),
        "{error}"
    );
    // ASCII is the same in each charset.
    let text = text_of("text/plain; charset=x-own", b"Zurich\r\n").await;
    assert_eq!(text.expect("text"), "Zurich\r\n");
}

#[tokio::test]
async fn body_above_64_mib_is_a_response_that_is_too_large() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 67108865\r\n\r\n";
    let error = answered(head)
        .await
        .bytes()
        .await
        .expect_err("it is larger");
    assert_eq!(error.kind(), Kind::TooLarge);
    let text = ": response is too large: it has more than 64 MiB; read it in parts, with `chunk`";
    assert!(error.to_string().ends_with(text), "{error}");
    is_named(&error);
}

#[tokio::test]
async fn body_of_another_type_is_an_error_that_names_its_request() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let error = answered(head).await.json::<Vec<u8>>().await;
    let error = error.expect_err("it is not a list");
    assert_eq!(error.kind(), Kind::Malformed);
    is_named(&error);
}

/// In a report of many calls, an error shows which one failed.
fn is_named(error: &Error) {
    let line = error.to_string();
    assert!(line.starts_with("GET http://127.0.0.1:"), "{line}");
}

#[tokio::test]
async fn the_body_of_an_error_is_read_within_the_bounds_of_the_builder() {
    let head = "HTTP/1.1 422 Unprocessable Content\r\ncontent-length: 60000\r\n\r\n";
    let server = Server::start(&[head.as_bytes(), &[b'x'; 60_000]].concat()).await;
    let wide = server
        .builder()
        .error_bodies(64 << 10, Duration::from_secs(9));
    for (builder, read) in [(server.builder(), 16 << 10), (wide, 60_000)] {
        let client = builder.build().expect("loopback is let through");
        let error = client.get("/close").await.expect_err("a 422");
        let cut = (error.body().len(), error.is_body_cut());
        assert_eq!(cut, (read, read < 60_000));
    }
}
