use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{Kind, classify};

/// Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110.
const WALL: Duration = Duration::from_secs(784_111_777);

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let lines = lines.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, value);
    }
    headers
}

fn of(status: u16, lines: &[(&str, &str)]) -> Option<Duration> {
    let status = StatusCode::from_u16(status).unwrap();
    super::super::hint(status, &headers(lines), || SystemTime::UNIX_EPOCH + WALL)
}

/// Whether a response is a used-up quota.
fn is_used(status: u16, lines: &[(&str, &str)]) -> bool {
    let status = StatusCode::from_u16(status).unwrap();
    let error = classify(&HeaderMap::new(), status, &headers(lines), "").unwrap_err();
    error.kind() == Kind::QuotaExhausted
}

#[test]
fn retry_after_precedes_the_ratelimit_headers() {
    let day = [
        ("x-ratelimit-remaining-day", "0"),
        ("ratelimit-reset", "9"),
        ("retry-after", "5"),
    ];
    assert_eq!(of(429, &day), Some(Duration::from_secs(5)));
    assert_eq!(of(429, &day[..2]), Some(Duration::from_secs(9)));
    assert!(is_used(429, &day), "the window is named");
}

#[test]
fn ratelimit_reset_is_read_only_for_a_429() {
    for status in [401, 416, 423, 500, 503] {
        assert_eq!(of(status, &[("ratelimit-reset", "9")]), None);
        let asked = [("retry-after", "86400")];
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(of(status, &asked), day, "{status}");
        assert!(!is_used(status, &asked), "{status}");
    }
}
