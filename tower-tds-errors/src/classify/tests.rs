use http::{HeaderMap, HeaderValue, StatusCode};

use super::{MOST_BYTES, classify};
use crate::{Error, Kind, Outcome, Sent};

type Lines<'a> = &'a [(&'static str, &'a str)];

fn headers(lines: Lines<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// The error of a response with these headers and this body, to a request with those headers.
fn error(asked: Lines<'_>, status: u16, said: Lines<'_>, body: impl AsRef<[u8]>) -> Option<Error> {
    let status = StatusCode::from_u16(status).unwrap();
    classify(&headers(asked), status, &headers(said), body).err()
}

const ROLE: &str =
    "Access token does not have the required scope/role: Missing required realm role";

#[test]
fn status_gives_the_kind_if_the_body_has_no_message_and_each_counts_as_answered() {
    for status in 100..1000 {
        let expected = match status {
            200..=299 | 304 => None,
            101 | 300..=399 | 511 => Some(Kind::UnexpectedResponse),
            401 => Some(Kind::InvalidToken),
            404 | 410 => Some(Kind::NotFound),
            416 => Some(Kind::ConnectionLimit),
            423 => Some(Kind::RateExceeded),
            429 => Some(Kind::Throttled),
            501 | 505..=508 | 510 => Some(Kind::Rejected),
            408 | 421 | 425 | 500..=999 => Some(Kind::Unavailable),
            _ => Some(Kind::Rejected),
        };
        for body in ["", "\0\0", "{", "<", "{\"message\":7}", "未知"] {
            let error = error(&[], status, &[], body);
            let is_late = [408, 504, 522, 524].contains(&status);
            assert_eq!(error.as_ref().is_some_and(Error::is_timeout), is_late);
            let read = error.map(|error| (error.kind(), error.sent()));
            let expected = expected.map(|kind| (kind, Sent::Answered));
            assert_eq!(read, expected, "{status} {body:?}");
        }
    }
}

#[test]
fn kind_of_a_416_depends_on_range_and_content_range() {
    let (range, total) = (("range", "bytes=5-"), ("content-range", "bytes */4"));
    for (asked, said, kind) in [
        (&[][..], &[][..], Kind::ConnectionLimit),
        (&[], &[total], Kind::Rejected),
        (&[range], &[], Kind::Rejected),
        (&[range], &[total], Kind::Rejected),
    ] {
        let error = error(asked, 416, said, "").unwrap();
        assert_eq!(error.kind(), kind, "{asked:?}");
        // Without a `Content-Range` it may be about connections, even if there is a range.
        assert_eq!(error.is_retryable(), said.is_empty());
        let is_unclear = error.to_string().contains("check the range, or share");
        assert_eq!(is_unclear, (asked, said) == (&[range][..], &[]));
        // Reproducer: forty resumed files whose range was refused waited 15.7 s in place of 3.2.
        let slows = Outcome::of_error(&error) == Some(Outcome::ConnectionsExceeded);
        assert_eq!(slows, kind == Kind::ConnectionLimit);
    }
}

#[test]
fn html_page_is_unexpected_if_only_data_is_accepted() {
    let page = "Text/HTML; charset=utf-8";
    for (accept, status, kind, length, is_unexpected) in [
        ("application/json", 200, page, "9", true),
        ("text/xml, application/json;q=0.5", 200, page, "9", true),
        ("application/geo+json", 200, page, "9", true),
        ("application/json, */*", 200, page, "9", false),
        ("application/xhtml+xml", 200, page, "9", false),
        ("text/html", 200, page, "9", false),
        ("", 200, page, "9", false),
        ("application/json", 200, "application/json", "9", false),
        ("application/json", 200, "text/htmlx", "9", false),
        // Without content it is no page.
        ("application/json", 201, page, "0", false),
        ("application/json", 204, page, "9", false),
        ("application/json", 205, page, "9", false),
    ] {
        let said = [("content-type", kind), ("content-length", length)];
        let found = error(&[("accept", accept)], status, &said, "").map(|it| it.kind());
        let expected = is_unexpected.then_some(Kind::UnexpectedResponse);
        assert_eq!(found, expected, "{accept} {status} {kind}");
    }
    assert!(error(&[], 200, &[("content-type", page)], "").is_none());
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
        let error = error(&[], 429, &[said], "").unwrap();
        let read = (error.kind(), error.is_retryable());
        assert_eq!(read, (kind, true), "{said:?}");
    }
}

/// Gateways send the counters of a limit with every response, so they are no hint.
#[test]
fn a_hint_changes_neither_kind_nor_outcome() {
    for status in [400, 403, 404, 409, 413, 415, 420, 422] {
        let of = |said| {
            let error = error(&[], status, said, "").unwrap();
            let outcome = Outcome::of_error(&error);
            (error.kind(), outcome, error.is_retryable())
        };
        let (kind, outcome, is_retryable) = of(&[]);
        assert!(!is_retryable, "{status}");
        let hinted = of(&[("retry-after", "5")]);
        assert_eq!(hinted, (kind, outcome, true), "{status}");
        let counted = of(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "9")]);
        assert_eq!(counted, (kind, outcome, status == 403), "{status}");
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
        let error = error(&[], 502, &all[..count], "").unwrap();
        assert_eq!(error.request_id(), Some(id));
    }
}

#[test]
fn a_known_text_of_the_first_challenge_decides_and_then_one_of_the_body() {
    use Kind::{InvalidToken, MissingCredentials, MissingRole, Unavailable};
    let texts = [
        ("no Authorization header found", MissingCredentials),
        ("no Bearer access token value found", MissingCredentials),
        ("invalid token", InvalidToken),
        ("invalid cached token", InvalidToken),
        ("JWT expired", InvalidToken),
        (ROLE, MissingRole),
        ("Missing required azp claim", MissingRole),
        ("accessing keys failed: timeout", Unavailable),
        (
            "response indicates failure, status=502, body=invalid token",
            Unavailable,
        ),
        ("JSON decoding failed", Unavailable),
    ];
    let challenged = |text: &str| format!("Bearer realm=\"kong\",error=\"{text}\"");
    for (known, expected) in texts {
        let (first, other) = (challenged(known), challenged("other words"));
        let second = ("www-authenticate", "Bearer error=\"insufficient_scope\"");
        for (body, _) in texts.into_iter().chain([("", InvalidToken)]) {
            let error = error(&[], 401, &[("www-authenticate", &first), second], body).unwrap();
            let read = (error.kind(), error.message());
            assert_eq!(read, (expected, Some(known)), "{body}");
        }
        let error = error(&[], 401, &[("www-authenticate", &other)], known).unwrap();
        assert_eq!(error.kind(), expected, "{known}");
    }
}

fn location(error: &Error) -> Option<&str> {
    error.facts().response.as_ref()?.location.as_deref()
}

#[test]
fn redirect_error_shows_its_location_without_user_and_query() {
    for (target, shown) in [
        ("https://me:CANARY@h/auth?a=CANARY#CANARY", "https://h/auth"),
        ("/login?next=CANARY", "/login"),
        ("//me:CANARY@h:8443/x?state=CANARY", "//h:8443/x"),
        ("//", ""),
        ("", ""),
        ("not a uri CANARY", ""),
    ] {
        let said = [("location", target)];
        let found = error(&[], 302, &said, "").unwrap();
        assert_eq!(location(&found).unwrap_or_default(), shown, "{target}");
        assert!(
            !format!("{found} {found:?}").contains("CANARY"),
            "{found:?}"
        );
        assert_eq!(location(&error(&[], 400, &said, "").unwrap()), None);
    }
}

#[test]
fn body_is_kept_up_to_16_kib() {
    let long = error(&[], 409, &[], vec![b'x'; MOST_BYTES + 1]).unwrap();
    assert!(long.body().len() == MOST_BYTES && long.is_body_cut());
}

#[test]
fn grpc_refusal_with_status_200_is_an_error_with_its_reason() {
    let seen = |kind, status, message| {
        let said = [
            ("content-type", kind),
            ("grpc-status", status),
            ("grpc-message", message),
        ];
        let error = error(&[], 200, &said, "");
        error.map(|error| (error.kind(), error.message().map(str::to_owned)))
    };
    let grpc = "application/grpc+proto";
    for (status, message, kind, reason) in [
        ("16", "", Kind::InvalidToken, ""),
        ("16", "JWT%20expired", Kind::InvalidToken, "JWT expired"),
        ("16", "%E2%82%AC %zz", Kind::InvalidToken, "\u{20ac} %zz"),
        ("16", ROLE, Kind::MissingRole, ROLE),
        ("7", "", Kind::MissingRole, ""),
        ("7", "no%20way", Kind::MissingRole, "no way"),
    ] {
        let (read, shown) = seen(grpc, status, message).unwrap();
        assert_eq!((read, &*shown.unwrap_or_default()), (kind, reason));
    }
    for status in ["0", "5", "14", "160", ""] {
        assert_eq!(seen(grpc, status, "x"), None, "{status}");
    }
    assert_eq!(seen("application/json", "16", "x"), None);
    assert_eq!(seen("text/html", "7", "x"), None);
}

#[test]
fn too_large_a_head_has_its_own_advice() {
    let advises = |status, body: &str| {
        let error = error(&[], status, &[], body).unwrap();
        assert_eq!(error.kind(), Kind::Rejected);
        error.to_string().contains("fewer roles or scopes")
    };
    assert!(advises(431, "") && advises(431, "<html>431</html>"));
    for body in [
        "<html><head><title>400 Request Header Or Cookie Too Large</title></head>",
        r#"{"title":"Request header fields too large"}"#,
        "Size of a request header field exceeds the limit.",
        "Request header is too large",
    ] {
        assert!(advises(400, body), "{body}");
    }
    assert!(
        [400, 413, 414]
            .iter()
            .all(|status| !advises(*status, "bad"))
    );
}
