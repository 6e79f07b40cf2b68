//! Any body gives a message that is safe to show, and what is declared as compressed gives the same one or none.
//!
//! Input: the body. Its first byte selects how the body is declared.

#![no_main]

use http::{HeaderMap, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use tower_tds_errors::{Error, classify};

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

    headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    let coded = judged(&headers, body);
    assert!(coded.message().is_none() || coded.message() == plain.message());
});

fn judged(headers: &HeaderMap, body: &[u8]) -> Error {
    match classify(&HeaderMap::new(), StatusCode::UNAUTHORIZED, headers, body) {
        Err(error) => error,
        Ok(()) => unreachable!("a failure stays one"),
    }
}
