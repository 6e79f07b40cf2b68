//! Any `WWW-Authenticate` is read without a panic, and a 401 stays about credentials. A text that
//! stands in a well-formed challenge is found.
//!
//! Input: a line that goes before a known challenge, and a line that goes into one.

#![no_main]

use http::{HeaderMap, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use tower_tds_errors::{Kind, classify};

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(2, |byte| *byte == b'\n');
    let (before, inside) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let mut headers = HeaderMap::new();
    let value = [b"Bearer realm=\"kong\", error=\"".as_slice(), inside, b"\""].concat();
    for value in [before, value.as_slice()] {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append("www-authenticate", value);
        }
    }
    let judged = |headers: &HeaderMap| match classify(
        &HeaderMap::new(),
        StatusCode::UNAUTHORIZED,
        headers,
        "",
    ) {
        Err(error) => error,
        Ok(()) => unreachable!("a failure stays one"),
    };
    let error = judged(&headers);
    assert_eq!(error.status(), Some(StatusCode::UNAUTHORIZED), "{error}");
    let message = error.message().unwrap_or_default();
    assert!(
        message.chars().count() <= 200 && !message.contains(char::is_control),
        "{message:?}"
    );

    // Where the rest has no meaning, what is known decides.
    if error.kind() == Kind::InvalidToken {
        let known = HeaderValue::from_static("Bearer realm=\"kong\",error=\"invalid token\"");
        headers.append("www-authenticate", known);
        assert_eq!(judged(&headers).kind(), Kind::InvalidToken);
    }
});
