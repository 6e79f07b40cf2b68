//! Any body gives a message that is safe to show, and one that is compressed the same one.
//!
//! Input: the body, of which the first byte says how it is declared.

#![no_main]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use tower_tds_errors::{Asked, Error, classify};

fuzz_target!(|input: &[u8]| {
    let Some((declared, body)) = input.split_first() else {
        return;
    };
    let kinds = [
        "",
        "application/json",
        "text/html; charset=big5",
        "text/plain; charset=utf-16",
    ];
    let kind = kinds[usize::from(*declared) % kinds.len()];
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(kind));
    let plain = judged(&headers, body);
    let message = plain.message().unwrap_or_default();
    assert!(
        message.chars().count() <= 200 && !message.contains(char::is_control),
        "{message:?}"
    );

    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = gzip.write_all(body).and_then(|()| gzip.finish());
    // A body that is gzip itself is undone once more, and twice is not the same as once.
    if let Ok(packed) = packed
        && !body.starts_with(b"\x1f\x8b")
    {
        headers.insert("content-encoding", HeaderValue::from_static("gzip"));
        let unpacked = judged(&headers, &packed);
        assert_eq!(unpacked.kind(), plain.kind());
        assert_eq!(unpacked.message(), plain.message());
    }
});

fn judged(headers: &HeaderMap, body: &[u8]) -> Error {
    match classify(Asked::default(), StatusCode::UNAUTHORIZED, headers, body) {
        Err(error) => error,
        Ok(()) => unreachable!("a failure stays one"),
    }
}
