//! Any status, headers and body are judged without a panic, and the body never makes a success
//! of a failure.
//!
//! Input: two bytes of status, then `WWW-Authenticate`, `Retry-After` and `Content-Type` as lines,
//! then the body.

#![no_main]

use http::{HeaderMap, HeaderValue, StatusCode, header};
use libfuzzer_sys::fuzz_target;
use tower_tds_errors::Answer;

fuzz_target!(|input: &[u8]| {
    let [high, low, rest @ ..] = input else {
        return;
    };
    let status = 100 + u16::from_be_bytes([*high, *low]) % 900;
    let Ok(status) = StatusCode::from_u16(status) else {
        return;
    };
    let mut lines = rest.splitn(4, |byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER, header::CONTENT_TYPE] {
        if let Some(Ok(value)) = lines.next().map(HeaderValue::from_bytes) {
            headers.insert(name, value);
        }
    }
    let body = lines.next().unwrap_or_default();

    let bare = Answer::new(status, &headers).kind();
    let whole = Answer::new(status, &headers).body(body).kind();
    assert_eq!(bare.is_none(), whole.is_none(), "the status decides what is a success");
    assert_eq!(bare.is_none(), status.is_success() || status == StatusCode::NOT_MODIFIED);
});
