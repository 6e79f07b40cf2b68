use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tower_oidc_cc::{Judge, Judgement};
use tower_tds_errors::classify;
use tower_tds_limits::{Feedback, Outcome};

use super::{BearerError, ReadError};

#[test]
fn every_answered_request_is_counted() {
    let headers = HeaderMap::new();
    for status in 100..1000 {
        let status = StatusCode::from_u16(status).expect("three digits");
        for text in ["", "invalid token", r#"{"error":"invalid_client"}"#] {
            let Err(error) = classify(&HeaderMap::new(), status, &headers, text) else {
                continue;
            };
            let read = ReadError.read(Err::<&Response<()>, _>(&BearerError::Inner(error)));
            assert_ne!(read, Outcome::Unsent, "{status} {text}");
            assert_ne!(read, Outcome::Lost, "{status} {text}");
        }
    }
}

#[test]
fn refusal_status_gives_the_limits_outcome() {
    let read = |status: u16, asked: &[(_, &'static str)], said: &[(_, &'static str)]| {
        let headers = |lines: &[(header::HeaderName, &'static str)]| {
            let lines = lines.iter().cloned();
            lines
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .collect::<HeaderMap>()
        };
        let status = StatusCode::from_u16(status).expect("three digits");
        let error = classify(&headers(asked), status, &headers(said), "");
        let error = BearerError::Inner(error.expect_err("a refusal"));
        ReadError.read(Err::<&Response<()>, _>(&error))
    };
    let range = (header::RANGE, "bytes=0-9");
    let content_range = (header::CONTENT_RANGE, "bytes */5");
    assert_eq!(read(416, &[], &[]), Outcome::ConnectionsExceeded);
    // It may be about connections if it has no `Content-Range`.
    let unclear = read(416, std::slice::from_ref(&range), &[]);
    assert_eq!(unclear, Outcome::ConnectionsExceeded);
    assert_eq!(read(416, &[range], &[content_range]), Outcome::Answered);
    assert_eq!(read(423, &[], &[]), Outcome::RateExceeded);
    let hint = Some(Duration::from_secs(7));
    let throttled = read(429, &[], &[(header::RETRY_AFTER, "7")]);
    assert_eq!(throttled, Outcome::QuotaExceeded(hint));
    assert_eq!(read(502, &[], &[]), Outcome::Answered);
    assert_eq!(read(504, &[], &[]), Outcome::GatewayTimedOut);
    assert_eq!(read(503, &[], &[]), Outcome::Answered);
}

#[test]
fn grpc_refusal_doubts_the_token_or_names_a_role() {
    for (status, expected) in [
        ("16", Some(Judgement::Refused)),
        ("7", Some(Judgement::MissingRole)),
        ("5", None),
    ] {
        let mut said = HeaderMap::new();
        said.insert("content-type", HeaderValue::from_static("application/grpc"));
        said.insert("grpc-status", HeaderValue::from_static(status));
        let error = classify(&HeaderMap::new(), StatusCode::OK, &said, "").err();
        let judged = error.map(|error| ReadError.judge(Err::<&Response<()>, _>(&error)));
        assert_eq!(judged, expected, "{status}");
    }
}
