//! Any status, headers and body are judged without a panic and within bounds, and the body never
//! makes a success of a failure.
//!
//! Input: two bytes of status, one of what the request wants, then the values of the headers below
//! as lines, then the body.

#![no_main]

use http::{HeaderMap, HeaderValue, StatusCode, header};
use libfuzzer_sys::fuzz_target;
use tower_tds_errors::classify;

fuzz_target!(|input: &[u8]| {
    let [high, low, wants, rest @ ..] = input else {
        return;
    };
    let status = 100 + u16::from_be_bytes([*high, *low]) % 900;
    let Ok(status) = StatusCode::from_u16(status) else {
        return;
    };
    let mut lines = rest.splitn(5, |byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for name in [
        header::WWW_AUTHENTICATE,
        header::RETRY_AFTER,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
    ] {
        if let Some(Ok(value)) = lines.next().map(HeaderValue::from_bytes) {
            headers.insert(name, value);
        }
    }
    let body = lines.next().unwrap_or_default();
    let mut asked = HeaderMap::new();
    for (bit, name) in ["range", "lock-token", "accept"].into_iter().enumerate() {
        if wants >> bit & 1 == 1 {
            asked.insert(name, HeaderValue::from_static("application/json"));
        }
    }

    let bare = classify(&asked, status, &headers, "");
    let whole = classify(&asked, status, &headers, body);
    assert_eq!(
        bare.is_ok(),
        whole.is_ok(),
        "the head decides what is a success"
    );
    let passes = status.is_success()
        || matches!(
            status,
            StatusCode::NOT_MODIFIED | StatusCode::SWITCHING_PROTOCOLS
        );
    assert!(passes || bare.is_err(), "a failure stays one");

    let Err(error) = whole else {
        return;
    };
    let message = error.message().unwrap_or_default();
    assert!(
        message.chars().count() <= 200 && !message.contains(char::is_control),
        "{message:?}"
    );
    let line = error.to_string();
    assert!(!line.contains(char::is_control), "one line");
    assert!(line.chars().count() <= 300 && format!("{error:?}").len() <= 2_000);
    assert!(error.body().len() <= 16 * 1024);
});
