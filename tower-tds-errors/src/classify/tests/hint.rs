use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{Kind, Outcome, classify};

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
    let error = classify(&HeaderMap::new(), status, &headers(lines), "").unwrap_err();
    error.retry_after()
}

/// Whether a response is a used-up quota.
fn is_used(status: u16, lines: &[(&str, &str)]) -> bool {
    let status = StatusCode::from_u16(status).unwrap();
    let error = classify(&HeaderMap::new(), status, &headers(lines), "").unwrap_err();
    error.kind() == Kind::QuotaExhausted
}

#[test]
fn a_hint_changes_neither_kind_nor_outcome() {
    let asked = [("retry-after", "5")];
    for status in [400, 403, 404, 409, 413, 415, 420, 422] {
        let of = |lines: &[_]| {
            let status = StatusCode::from_u16(status).unwrap();
            classify(&HeaderMap::new(), status, &headers(lines), "").unwrap_err()
        };
        let (plain, hinted) = (of(&[]), of(&asked));
        assert_eq!(
            (plain.kind(), Outcome::of_error(&plain)),
            (hinted.kind(), Outcome::of_error(&hinted))
        );
        assert!(hinted.is_retryable() && !plain.is_retryable(), "{status}");
        // A counter that every response has is no hint.
        let counted = of(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "9")]);
        assert_eq!(counted.is_retryable(), status == 403, "{status}");
        assert!(!is_used(status, &asked), "{status}");
    }
    for status in [401, 407] {
        assert_eq!(of(status, &asked), None, "{status}");
    }
}
