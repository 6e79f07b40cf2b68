use http::{HeaderMap, HeaderValue, StatusCode};

use super::Answer;
use crate::Kind;

fn kind(status: u16, body: &str) -> Option<Kind> {
    let headers = HeaderMap::new();
    let status = StatusCode::from_u16(status).unwrap();
    Answer::new(status, &headers).body(body.as_bytes()).kind()
}

/// The formats that the gateways and their likes wrap a text in.
fn formats(text: &str) -> Vec<String> {
    let solidus = text.replace('/', "\\/");
    vec![
        format!("{text}\n"),
        format!("{text}\nrequest_id: 1f00"),
        format!("{{\"message\":\"{solidus}\"}}"),
        format!("{{\n  \"message\":\"{text}\",\n  \"request_id\":\"1f00\"\n}}"),
        format!("{{\"error\":\"{text}\",\"error_description\":\"other words\"}}"),
        format!("{{\"message\":\"{solidus}\""),
        format!("<h1>Error</h1>\n<p>{text}.</p>\n<p>request_id: 1f00</p>"),
        format!("<?xml version=\"1.0\"?>\n<error>\n  <message>{text}</message>\n</error>"),
        format!("\"{text}\""),
        text.to_ascii_uppercase(),
    ]
}

const ROLE: &str =
    "Access token does not have the required scope/role: Missing required realm role";

#[test]
fn a_text_means_the_same_in_every_format() {
    for (status, text, expected) in [
        (
            401,
            "no Authorization header found",
            Kind::MissingCredentials,
        ),
        (
            401,
            "no Bearer access token value found",
            Kind::MissingCredentials,
        ),
        (401, "invalid token", Kind::InvalidToken),
        (401, "invalid cached token", Kind::InvalidToken),
        (401, "JWT expired", Kind::InvalidToken),
        (401, ROLE, Kind::MissingRole),
        (403, ROLE, Kind::MissingRole),
        (401, "Missing required azp claim", Kind::MissingRole),
        (
            401,
            "accessing introspection endpoint (x) failed: timeout",
            Kind::IdentityUnavailable,
        ),
        (
            401,
            "response indicates failure, status=502, body=invalid token",
            Kind::IdentityUnavailable,
        ),
        (401, "JSON decoding failed", Kind::IdentityUnavailable),
        (401, "Unauthorized", Kind::Unauthorized),
        (401, "the invalid token was not checked", Kind::Unauthorized),
        (403, "invalid token", Kind::Forbidden),
        (429, "API rate limit exceeded", Kind::Throttled),
        (429, "invalid token", Kind::Throttled),
        (416, "Range not satisfiable", Kind::ConnectionLimit),
        (423, "Locked", Kind::RateExceeded),
        (503, "invalid token", Kind::Unavailable),
    ] {
        for body in formats(text) {
            assert_eq!(kind(status, &body), Some(expected), "{status} {body}");
        }
    }
}

#[test]
fn the_status_decides_where_the_body_says_nothing() {
    for status in 100..1000 {
        let expected = match status {
            200..=299 | 304 => None,
            300..=399 => Some(Kind::UnexpectedRedirect),
            401 => Some(Kind::Unauthorized),
            403 => Some(Kind::Forbidden),
            404 | 410 => Some(Kind::NotFound),
            408 | 504 | 522 | 524 => Some(Kind::ServerTimeout),
            416 => Some(Kind::ConnectionLimit),
            423 => Some(Kind::RateExceeded),
            425 => Some(Kind::TooEarly),
            429 => Some(Kind::Throttled),
            501 | 505..=508 | 510 | 511 => Some(Kind::Rejected),
            500..=599 => Some(Kind::Unavailable),
            _ => Some(Kind::Rejected),
        };
        for body in ["", "\0\0", "{", "<", "{\"message\":7}", "未知"] {
            assert_eq!(kind(status, body), expected, "{status} {body:?}");
        }
    }
}

#[test]
fn a_body_cut_anywhere_means_the_whole_or_what_the_status_means() {
    for text in ["no Authorization header found", "invalid token", ROLE] {
        for body in formats(text) {
            let (whole, status) = (kind(401, &body), kind(401, ""));
            for (at, _) in body.char_indices() {
                let cut = kind(401, &body[..at]);
                assert!(
                    cut == whole || cut == status,
                    "{cut:?} for {:?}",
                    &body[..at]
                );
            }
        }
    }
}

#[test]
fn a_416_is_about_ranges_only_if_a_range_was_asked_for() {
    let (headers, mut asked) = (HeaderMap::new(), HeaderMap::new());
    let answer = Answer::new(StatusCode::RANGE_NOT_SATISFIABLE, &headers);
    assert_eq!(answer.asked(&asked).kind(), Some(Kind::ConnectionLimit));
    asked.insert("range", HeaderValue::from_static("bytes=0-1"));
    assert_eq!(answer.asked(&asked).kind(), Some(Kind::RangeNotSatisfiable));
}

#[test]
fn the_challenge_suffices_where_the_body_is_generic() {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_static(r#"Bearer realm="kong",error="invalid token""#);
    headers.insert("www-authenticate", value);
    let answer = Answer::new(StatusCode::UNAUTHORIZED, &headers);
    for body in ["", "{\"message\":\"Unauthorized\"}", "<p>Unauthorized.</p>"] {
        let judged = answer.body(body.as_bytes()).judge();
        let expected = (Kind::InvalidToken, Some("invalid token".to_owned()));
        assert_eq!(judged, Some(expected), "{body}");
    }
}

#[test]
fn a_body_in_a_coding_that_is_not_known_gives_no_text() {
    let mut headers = HeaderMap::new();
    headers.insert("content-encoding", HeaderValue::from_static("zstd"));
    let zstd = b"\x28\xb5\x2f\xfd\x04\x00\x71\x00\x00invalid token";
    let answer = Answer::new(StatusCode::UNAUTHORIZED, &headers).body(zstd);
    assert_eq!(answer.judge(), Some((Kind::Unauthorized, None)));
}

#[test]
fn a_refused_client_is_told_from_a_refused_token() {
    let body = r#"{"error":"invalid_client","error_description":"Invalid client or Invalid client credentials"}"#;
    for status in [400, 401] {
        assert_eq!(kind(status, body), Some(Kind::TokenRefused));
    }
}
