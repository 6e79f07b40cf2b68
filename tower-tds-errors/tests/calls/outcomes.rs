//! Meaning of a typed error for the token and the limits.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tower_tds_errors::{Outcome, classify};

/// A classified response means the same for the token and the limits as the response itself.
#[test]
fn typed_error_means_what_its_response_means() {
    let challenges = [
        None,
        Some(("www-authenticate", "Bearer error=\"invalid token\"")),
        Some((
            "www-authenticate",
            "Bearer error=\"no Authorization header found\"",
        )),
        Some(("www-authenticate", "Bearer error=insufficient_scope")),
        Some(("content-range", "bytes */5")),
        Some(("retry-after", "7")),
        Some(("grpc-status", "16")),
    ];
    for status in 100..1000 {
        let status = StatusCode::from_u16(status).expect("three digits");
        for header in challenges {
            let mut said = HeaderMap::new();
            if let Some((name, value)) = header {
                said.insert(name, HeaderValue::from_static(value));
                said.insert("content-type", HeaderValue::from_static("application/grpc"));
            }
            for asked in ["", "bytes=0-9"] {
                let mut request = HeaderMap::new();
                if !asked.is_empty() {
                    request.insert(header::RANGE, HeaderValue::from_static(asked));
                }
                // The gateway could not check the token, so that the kind is another.
                let unchecked = "response indicates failure, status=502";
                let body = if status.is_success() { "" } else { unchecked };
                let mut head = Response::new(());
                (*head.status_mut(), *head.headers_mut()) = (status, said.clone());
                let mut expected = Outcome::of_response(&head);
                let typed = match classify(&request, status, &said, body) {
                    Ok(()) => expected,
                    Err(error) => Outcome::of_error(&error).unwrap_or(Outcome::Lost),
                };
                // The error of a 423 has the second of silence as its own wait.
                if let Outcome::QuotaExceeded(_) = expected {
                    let wait = said.get("retry-after").map(|_| Duration::from_secs(7));
                    expected = Outcome::QuotaExceeded(wait);
                }
                // Only the error knows that the request had a range, which the 416 may be about.
                if expected == Outcome::ConnectionsExceeded && !asked.is_empty() {
                    expected = Outcome::Other;
                }
                assert_eq!(typed, expected, "{status} {header:?}");
            }
        }
    }
}
