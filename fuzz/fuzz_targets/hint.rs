//! Any `Retry-After` and any headers of rate limits are read without a panic. Plain seconds are
//! never lost or read as fewer, whatever else is there.
//!
//! Input: four bytes of seconds, then the values of the headers below as lines.

#![no_main]

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use tower_tds_errors::classify;

fuzz_target!(|input: &[u8]| {
    let Some((seconds, rest)) = input.split_first_chunk() else {
        return;
    };
    let mut headers = HeaderMap::new();
    let names = [
        "retry-after",
        "date",
        "ratelimit-remaining",
        "ratelimit-reset",
        "x-ratelimit-remaining-day",
    ];
    for (name, line) in names.into_iter().zip(rest.split(|byte| *byte == b'\n')) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.insert(name, value);
        }
    }
    for status in [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        let Err(without) = classify(&HeaderMap::new(), status, &headers, "") else {
            unreachable!("a failure stays one");
        };
        let seconds = u64::from(u32::from_be_bytes(*seconds));
        let mut more = headers.clone();
        more.append("retry-after", HeaderValue::from(seconds));
        let Err(with) = classify(&HeaderMap::new(), status, &more, "") else {
            unreachable!("a failure stays one");
        };
        let wait = Some(Duration::from_secs(seconds));
        assert!(with.retry_after() >= wait);
        assert!(headers.contains_key("retry-after") || with.retry_after() == wait);
        assert!(without.is_retryable());
    }
});
