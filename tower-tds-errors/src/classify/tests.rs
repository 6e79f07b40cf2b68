use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{MOST_BYTES, classify};
use crate::{Error, Kind, Sent};

mod hint;

/// A response and the properties of its request.
#[derive(Clone)]
struct Answer<'a> {
    asked: HeaderMap,
    status: StatusCode,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    fn new(status: StatusCode, headers: &'a HeaderMap) -> Self {
        Self {
            asked: HeaderMap::new(),
            status,
            headers,
            body: b"",
        }
    }

    fn asked(&self, asked: &HeaderMap) -> Self {
        Self {
            asked: asked.clone(),
            ..self.clone()
        }
    }

    fn body(&self, body: &'a [u8]) -> Self {
        Self {
            body,
            ..self.clone()
        }
    }

    fn error(&self) -> Option<Error> {
        classify(&self.asked, self.status, self.headers, self.body).err()
    }

    fn kind(&self) -> Option<Kind> {
        self.error().map(|error| error.kind())
    }
}

fn kind(status: u16, body: &str) -> Option<Kind> {
    let headers = HeaderMap::new();
    let status = StatusCode::from_u16(status).unwrap();
    Answer::new(status, &headers).body(body.as_bytes()).kind()
}

fn headers(entries: &[(&'static str, &'static str)]) -> HeaderMap {
    let entries = entries.iter().map(|(name, value)| {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        (name, value)
    });
    entries.collect()
}

/// `text` in each format of the gateways and similar servers.
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

// Raw responses of the gateways stand in `tests/corpus`.
#[test]
fn every_message_gives_its_kind_in_every_format() {
    let mut read = 0;
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
            Kind::Unavailable,
        ),
        (
            401,
            "response indicates failure, status=502, body=invalid token",
            Kind::Unavailable,
        ),
        (401, "JSON decoding failed", Kind::Unavailable),
        (401, "Unauthorized", Kind::InvalidToken),
        (
            401,
            "Accessing this resource requires a subscription",
            Kind::InvalidToken,
        ),
        (401, "the invalid token was not checked", Kind::InvalidToken),
        (403, "invalid token", Kind::Rejected),
        (429, "API rate limit exceeded", Kind::Throttled),
        (429, "invalid token", Kind::Throttled),
        (416, "Range not satisfiable", Kind::ConnectionLimit),
        (423, "Locked", Kind::RateExceeded),
        (503, "invalid token", Kind::Unavailable),
    ] {
        for body in formats(text) {
            assert_eq!(kind(status, &body), Some(expected), "{status} {body}");
            read += 1;
        }
    }
    assert!(read >= 200, "{read}");
}

#[test]
fn status_gives_the_kind_if_the_body_has_no_message() {
    for status in 100..1000 {
        let expected = match status {
            200..=299 | 304 => None,
            101 | 300..=399 => Some(Kind::UnexpectedAnswer),
            401 => Some(Kind::InvalidToken),
            403 => Some(Kind::Rejected),
            404 | 410 => Some(Kind::NotFound),
            407 => Some(Kind::Rejected),
            408 | 504 | 522 | 524 => Some(Kind::Unavailable),
            416 => Some(Kind::ConnectionLimit),
            423 => Some(Kind::RateExceeded),
            421 | 425 => Some(Kind::Unavailable),
            429 => Some(Kind::Throttled),
            501 | 505..=508 | 510 => Some(Kind::Rejected),
            511 => Some(Kind::UnexpectedAnswer),
            500..=999 => Some(Kind::Unavailable),
            _ => Some(Kind::Rejected),
        };
        for body in ["", "\0\0", "{", "<", "{\"message\":7}", "未知"] {
            assert_eq!(kind(status, body), expected, "{status} {body:?}");
        }
    }
}

#[test]
fn every_error_response_counts_as_answered() {
    let headers = HeaderMap::new();
    for status in 100..1000 {
        let status = StatusCode::from_u16(status).unwrap();
        for text in ["", r#"{"error":"invalid_client"}"#] {
            let Err(error) = classify(&HeaderMap::new(), status, &headers, text) else {
                continue;
            };
            assert_eq!(error.sent(), Sent::Answered, "{status} {text}");
        }
    }
}

#[test]
fn kind_of_a_416_depends_on_range_and_content_range() {
    let range = ("range", "bytes=5-");
    let total = ("content-range", "bytes */4");
    for (asked, said, kind) in [
        (&[][..], &[][..], Kind::ConnectionLimit),
        (&[], &[total], Kind::Rejected),
        (&[range], &[], Kind::RangeUnclear),
        (&[range], &[total], Kind::Rejected),
    ] {
        let said = headers(said);
        let answer = Answer::new(StatusCode::RANGE_NOT_SATISFIABLE, &said);
        assert_eq!(
            answer.asked(&headers(asked)).kind(),
            Some(kind),
            "{asked:?}"
        );
    }
}

#[test]
fn html_page_is_unexpected_if_only_data_is_accepted() {
    let page = headers(&[("content-type", "Text/HTML; charset=utf-8")]);
    let data = headers(&[("content-type", "application/json")]);
    for (accept, kind) in [
        ("application/json", Some(Kind::UnexpectedAnswer)),
        (
            "text/xml, application/json;q=0.5",
            Some(Kind::UnexpectedAnswer),
        ),
        ("application/geo+json", Some(Kind::UnexpectedAnswer)),
        ("application/json, */*", None),
        ("application/xhtml+xml", None),
        ("text/html", None),
        ("", None),
    ] {
        let asked = headers(&[("accept", accept)]);
        let of = |said| Answer::new(StatusCode::OK, said).asked(&asked).kind();
        assert_eq!((of(&page), of(&data)), (kind, None), "{accept}");
    }
    assert_eq!(Answer::new(StatusCode::OK, &page).kind(), None);
    // Of the same length as `text/html`.
    let text = headers(&[("content-type", "text/json; charset=utf-8")]);
    let asked = headers(&[("accept", "application/json")]);
    let answer = Answer::new(StatusCode::OK, &text).asked(&asked);
    assert_eq!(answer.kind(), None);
}

#[test]
fn long_limit_is_quota_exhausted_and_minute_limit_is_throttled() {
    for (said, kind) in [
        (("x-ratelimit-remaining-day", "0"), Kind::QuotaExhausted),
        (("x-ratelimit-remaining-hour", "0"), Kind::QuotaExhausted),
        (("retry-after", "86400"), Kind::QuotaExhausted),
        (("retry-after", "61"), Kind::QuotaExhausted),
        (("x-ratelimit-remaining-minute", "0"), Kind::Throttled),
        (("x-ratelimit-remaining-day", "7"), Kind::Throttled),
        (("retry-after", "60"), Kind::Throttled),
    ] {
        let headers = headers(&[said]);
        let error = classify(
            &HeaderMap::new(),
            StatusCode::TOO_MANY_REQUESTS,
            &headers,
            "",
        )
        .unwrap_err();
        assert_eq!(error.kind(), kind, "{said:?}");
        assert!(error.is_retryable());
    }
}

#[test]
fn gateway_request_id_precedes_other_request_ids() {
    let all = [
        ("x-correlation-id", "c"),
        ("x-request-id", "b"),
        ("x-kong-request-id", "a"),
    ];
    for (count, id) in [(1, "c"), (2, "b"), (3, "a")] {
        let headers = headers(&all[..count]);
        let error = classify(&HeaderMap::new(), StatusCode::BAD_GATEWAY, &headers, "").unwrap_err();
        assert_eq!(error.request_id(), Some(id));
    }
}

#[test]
fn challenge_gives_the_kind_if_the_body_is_generic() {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_static(r#"Bearer realm="kong",error="invalid token""#);
    headers.insert("www-authenticate", value);
    let answer = Answer::new(StatusCode::UNAUTHORIZED, &headers);
    for body in ["", "{\"message\":\"Unauthorized\"}", "<p>Unauthorized.</p>"] {
        let error = answer.body(body.as_bytes()).error().unwrap();
        assert_eq!(error.kind(), Kind::InvalidToken, "{body}");
        assert_eq!(error.message(), Some("invalid token"), "{body}");
    }
}

#[test]
fn challenge_overrides_a_contradicting_body() {
    let texts = [
        ("no Authorization header found", Kind::MissingCredentials),
        ("invalid token", Kind::InvalidToken),
        (ROLE, Kind::MissingRole),
        ("accessing keys failed: timeout", Kind::Unavailable),
        ("invalid_client", Kind::TokenRefused),
    ];
    for (challenge, expected) in texts {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("Bearer realm=\"kong\",error=\"{challenge}\""));
        headers.insert("www-authenticate", value.unwrap());
        let answer = Answer::new(StatusCode::UNAUTHORIZED, &headers);
        for body in texts.iter().flat_map(|(text, _)| formats(text)) {
            let error = answer.body(body.as_bytes()).error().unwrap();
            assert_eq!(error.kind(), expected, "{challenge}: {body}");
            assert_eq!(error.message(), Some(challenge), "{body}");
        }
        // The body decides if the header has no known text.
        let value = HeaderValue::from_static("Bearer error=\"other words\"");
        headers.insert("www-authenticate", value);
        let answer = Answer::new(StatusCode::UNAUTHORIZED, &headers);
        let error = answer.body(challenge.as_bytes()).error().unwrap();
        assert_eq!(error.kind(), expected, "{challenge}");
    }
}

#[test]
fn first_of_several_challenges_gives_the_kind() {
    let mut headers = HeaderMap::new();
    for text in ["invalid token", "insufficient_scope"] {
        let value = HeaderValue::from_str(&format!("Bearer error=\"{text}\"")).unwrap();
        headers.append("www-authenticate", value);
    }
    let answer = Answer::new(StatusCode::UNAUTHORIZED, &headers);
    assert_eq!(answer.kind(), Some(Kind::InvalidToken));
}

#[test]
fn invalid_client_is_token_refused() {
    let body = r#"{"error":"invalid_client","error_description":"Invalid client or Invalid client credentials"}"#;
    for status in [400, 401] {
        assert_eq!(kind(status, body), Some(Kind::TokenRefused));
    }
}

fn location(error: &Error) -> Option<&str> {
    error.facts().answer.as_ref()?.location.as_deref()
}

#[test]
fn redirect_error_shows_its_location_without_user_and_query() {
    for (target, shown) in [
        (
            "https://me:CANARY@id.example/auth?state=CANARY#CANARY",
            Some("https://id.example/auth"),
        ),
        ("/login?next=CANARY", Some("/login")),
        (
            "//me:CANARY@b.example:8443/x?state=CANARY",
            Some("//b.example:8443/x"),
        ),
        ("//", None),
        ("", None),
        ("not a uri CANARY", None),
    ] {
        let headers = headers(&[("location", target)]);
        let error = classify(&HeaderMap::new(), StatusCode::FOUND, &headers, "").unwrap_err();
        assert_eq!(location(&error), shown, "{target}");
        assert!(
            !format!("{error} {error:?}").contains("CANARY"),
            "{error:?}"
        );
        let created = Answer::new(StatusCode::BAD_REQUEST, &headers).error();
        assert_eq!(location(&created.unwrap()), None);
    }
}

#[test]
fn error_keeps_the_body_and_prints_none_of_it() {
    let body = r#"{"message":"no","detail":{"secret":"CANARY"}}"#;
    let error = classify(
        &HeaderMap::new(),
        StatusCode::CONFLICT,
        &HeaderMap::new(),
        body,
    )
    .unwrap_err();
    assert_eq!(error.body(), body.as_bytes());
    assert!(!format!("{error} {error:?} {error:#?}").contains("CANARY"));
    let long = vec![b'x'; MOST_BYTES + 1];
    let error = classify(
        &HeaderMap::new(),
        StatusCode::CONFLICT,
        &HeaderMap::new(),
        long,
    )
    .unwrap_err();
    assert_eq!(error.body().len(), MOST_BYTES);
}

#[test]
fn html_success_without_content_is_accepted() {
    let page = [("content-type", "text/html; charset=UTF-8")];
    let asked = headers(&[("accept", "application/json")]);
    for (status, more, expected) in [
        (200, &[][..], Some(Kind::UnexpectedAnswer)),
        (
            200,
            &[("content-length", "1")],
            Some(Kind::UnexpectedAnswer),
        ),
        (201, &[("content-length", "0")], None),
        (204, &[], None),
        (205, &[], None),
    ] {
        let answered = headers(&[&page, more].concat());
        let status = StatusCode::from_u16(status).unwrap();
        let answer = Answer::new(status, &answered).asked(&asked);
        assert_eq!(answer.kind(), expected, "{status} {more:?}");
    }
}

#[test]
fn grpc_refusal_with_status_200_is_an_error_with_its_reason() {
    let seen = |kind, status, message| {
        let headers = headers(&[
            ("content-type", kind),
            ("grpc-status", status),
            ("grpc-message", message),
        ]);
        let error = Answer::new(StatusCode::OK, &headers).error();
        error.map(|error| (error.kind(), error.message().map(str::to_owned)))
    };
    let grpc = "application/grpc+proto";
    let text = |text: &str| Some(text.to_owned());
    for (status, message, kind, reason) in [
        ("16", "", Kind::InvalidToken, None),
        (
            "16",
            "invalid token",
            Kind::InvalidToken,
            text("invalid token"),
        ),
        (
            "16",
            "JWT%20expired",
            Kind::InvalidToken,
            text("JWT expired"),
        ),
        (
            "16",
            "who are you%3F",
            Kind::InvalidToken,
            text("who are you?"),
        ),
        ("16", "100%", Kind::InvalidToken, text("100%")),
        (
            "16",
            "%E2%82%AC %zz",
            Kind::InvalidToken,
            text("\u{20ac} %zz"),
        ),
        (
            "16",
            "Missing required realm role",
            Kind::MissingRole,
            text("Missing required realm role"),
        ),
        ("7", "", Kind::MissingRole, None),
        ("7", "no%20way", Kind::MissingRole, text("no way")),
    ] {
        assert_eq!(
            seen(grpc, status, message),
            Some((kind, reason)),
            "{status} {message}"
        );
    }
    for status in ["0", "5", "14", "160", ""] {
        assert_eq!(seen(grpc, status, "x"), None, "{status}");
    }
    assert_eq!(seen("application/json", "16", "x"), None);
    assert_eq!(seen("text/html", "7", "x"), None);
}

#[test]
fn too_large_a_header_names_the_size_of_the_token() {
    let sent = headers(&[("authorization", "Bearer canary-canary")]);
    let nginx = "<html><head><title>400 Request Header Or Cookie Too Large</title></head>\
                 <body><center><h1>400 Bad Request</h1></center>\
                 <center>Request Header Or Cookie Too Large</center></body></html>";
    let none = HeaderMap::new();
    for (status, body) in [
        (431, ""),
        (431, "<html>431</html>"),
        (400, nginx),
        (400, r#"{"message":"Request header or cookie too large"}"#),
        (400, "Size of a request header field exceeds server limit."),
        (400, "Request header is too large"),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let answer = Answer::new(status, &none).body(body.as_bytes());
        let error = answer.asked(&sent).error().unwrap();
        assert_eq!(error.kind(), Kind::Rejected);
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("token") && text.contains("20 bytes"),
            "{text}"
        );
        assert!(!text.contains("canary"), "{text}");
        let text = answer.error().unwrap().to_string();
        assert!(text.contains("send fewer or shorter headers"), "{text}");
    }
    for (status, body) in [(400, "bad"), (413, ""), (414, "")] {
        let status = StatusCode::from_u16(status).unwrap();
        let answer = Answer::new(status, &none).body(body.as_bytes());
        let text = answer.asked(&sent).error().unwrap().to_string();
        assert!(!text.contains("bytes"), "{text}");
    }
}
