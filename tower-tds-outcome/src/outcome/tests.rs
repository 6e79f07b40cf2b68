use std::time::Duration;

use http::HeaderValue;

use super::*;

fn judged(status: StatusCode, challenges: &[&str]) -> Outcome {
    let mut response = Response::builder().status(status);
    for challenge in challenges {
        response = response.header(header::WWW_AUTHENTICATE, *challenge);
    }
    Outcome::of_response(&response.body(()).unwrap())
}

#[test]
fn a_401_refuses_the_token_unless_it_names_a_role_or_a_header() {
    use Outcome::{NoHeader, RoleMissing, TokenRefused};
    for (challenge, expected) in [
        (r#"Bearer realm="kong",error="invalid token""#, TokenRefused),
        (r#"Bearer realm="kong",error="Invalid Token""#, TokenRefused),
        (r#"Bearer realm="kong", error="JWT expired""#, TokenRefused),
        (
            r#"Bearer realm="kong",error="invalid cached token""#,
            TokenRefused,
        ),
        (
            r#"Bearer realm="r", error="invalid_token", error_description="Token verification failed""#,
            TokenRefused,
        ),
        (r#"Bearer error=invalid_token"#, TokenRefused),
        (r#"bearer ERROR = "invalid_token""#, TokenRefused),
        (
            r#"Basic realm="x", Bearer error="invalid_token""#,
            TokenRefused,
        ),
        (
            r#"Bearer realm="kong",error="no Authorization header found""#,
            NoHeader,
        ),
        (
            r#"Bearer error="no Bearer authorization header value found""#,
            NoHeader,
        ),
        (
            r#"Bearer error="No Bearer access token value found""#,
            NoHeader,
        ),
        (
            r#"Bearer error="Access token does not have the required scope/role: Missing required realm role""#,
            RoleMissing,
        ),
        (r#"Bearer error="insufficient_scope""#, RoleMissing),
        (
            r#"Bearer error="accessing introspection endpoint failed: invalid token""#,
            TokenRefused,
        ),
        (
            r#"Bearer error="response indicates failure, status=503""#,
            TokenRefused,
        ),
        (r#"Bearer error="JSON decoding failed""#, TokenRefused),
        (r#"Bearer error_description="invalid token""#, TokenRefused),
        (r#"Bearer realm="a, error=invalid_token""#, TokenRefused),
        (r#"Bearer realm="a\", error=\"invalid_token""#, TokenRefused),
        (r#"Bearer realm="error="invalid"#, TokenRefused),
        // A realm is a name, and the error of a challenge explains its description.
        (r#"Bearer realm="Missing required claims""#, TokenRefused),
        (
            r#"Bearer realm="no Authorization header found""#,
            TokenRefused,
        ),
        (
            r#"Bearer error_description="Missing required realm role", error="invalid_token""#,
            TokenRefused,
        ),
        (
            r#"Bearer error="invalid_token", error_description="Missing required claim: exp""#,
            TokenRefused,
        ),
        (
            r#"Bearer error_description="Missing required claim: exp""#,
            TokenRefused,
        ),
        (
            r#"Bearer error_description="Missing required azp claim""#,
            RoleMissing,
        ),
        ("Bearer", TokenRefused),
        ("", TokenRefused),
        ("=", TokenRefused),
        ("error=\"", TokenRefused),
    ] {
        assert_eq!(
            judged(StatusCode::UNAUTHORIZED, &[challenge]),
            expected,
            "{challenge}"
        );
    }
}

#[test]
fn every_challenge_header_is_read() {
    let challenges = ["Basic", r#"Bearer error="invalid_token""#];
    assert_eq!(
        judged(StatusCode::UNAUTHORIZED, &challenges),
        Outcome::TokenRefused
    );
}

#[test]
fn other_statuses_never_refuse_the_token() {
    let dead = [r#"Bearer error="invalid_token""#];
    let judged = |status| judged(StatusCode::from_u16(status).unwrap(), &dead);
    for status in [200, 204, 304] {
        assert_eq!(judged(status), Outcome::Accepted, "{status}");
    }
    // A gateway may give these answers before it looks at the token.
    for status in [302, 400, 403, 404, 407, 408, 500, 503] {
        assert_eq!(judged(status), Outcome::Other, "{status}");
    }
}

#[test]
fn a_401_without_a_challenge_refuses_the_token() {
    let judged = judged(StatusCode::UNAUTHORIZED, &[]);
    assert_eq!(judged, Outcome::TokenRefused);
}

#[test]
fn status_403_reports_a_missing_role_and_never_refuses() {
    for (challenge, expected) in [
        (
            r#"Bearer error="insufficient_scope", scope="rail""#,
            Outcome::RoleMissing,
        ),
        (
            r#"Bearer error="Missing required realm role""#,
            Outcome::RoleMissing,
        ),
        (r#"Bearer error="invalid_token""#, Outcome::Other),
        (
            r#"Bearer error="no Authorization header found""#,
            Outcome::Other,
        ),
    ] {
        let judged = judged(StatusCode::FORBIDDEN, &[challenge]);
        assert_eq!(judged, expected, "{challenge}");
    }
}

#[test]
fn grpc_status_in_the_head_refuses_the_token_or_names_a_role() {
    use Outcome::{Accepted, Other, RoleMissing, TokenRefused};
    let judged = |kind: Option<&str>, status: Option<&str>| {
        let mut response = Response::builder();
        if let Some(kind) = kind {
            response = response.header(header::CONTENT_TYPE, kind);
        }
        if let Some(status) = status {
            response = response.header("grpc-status", status);
        }
        Outcome::of_response(&response.body(()).unwrap())
    };
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web+proto",
        "Application/GRPC; charset=utf-8",
    ] {
        for (status, expected) in [
            (Some("16"), TokenRefused),
            (Some(" 16 "), TokenRefused),
            (Some("7"), RoleMissing),
            (Some("0"), Accepted),
            (Some("5"), Accepted),
            (Some("3"), Accepted),
            (Some("116"), Accepted),
            (None, Accepted),
            // A gateway can send these before it checks a token, like a 503, 504, 429 or 500.
            (Some("14"), Other),
            (Some("4"), Other),
            (Some("8"), Other),
            (Some("13"), Other),
            (Some("2"), Other),
        ] {
            assert_eq!(judged(Some(kind), status), expected, "{kind} {status:?}");
        }
    }
    for kind in [
        None,
        Some("application/json"),
        Some("text/html"),
        Some("grpc"),
    ] {
        assert_eq!(judged(kind, Some("16")), Accepted, "{kind:?}");
    }
}

fn read(status: u16, headers: &[(&'static str, &'static str)]) -> Outcome {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        response.headers_mut().append(*name, value);
    }
    Outcome::of_response(&response)
}

#[test]
fn each_contract_status_has_its_own_outcome() {
    assert_eq!(read(423, &[]), Outcome::RateExceeded);
    assert_eq!(read(429, &[]), Outcome::QuotaExceeded(None));
    assert_eq!(read(416, &[]), Outcome::ConnectionsExceeded);
    assert_eq!(read(504, &[]), Outcome::GatewayTimedOut);
    // Whether a gateway or the service answered, the request was sent and counted.
    for status in [200, 401, 403, 404, 416, 423, 429, 500, 503, 504] {
        let outcome = read(status, &[]);
        let is_unanswered = matches!(outcome, Outcome::Unsent | Outcome::Lost);
        assert!(!is_unanswered, "{status}: {outcome:?}");
    }
}

#[test]
fn outcome_in_the_extensions_comes_before_the_status() {
    let mut response = Response::builder().status(423).body(()).unwrap();
    response.extensions_mut().insert(Outcome::Other);
    assert_eq!(Outcome::of_response(&response), Outcome::Other);
}

#[test]
fn a_416_about_a_range_is_not_about_connections() {
    let about_a_range = [("content-range", "bytes */1234")];
    assert_eq!(read(416, &about_a_range), Outcome::Other);
}

#[test]
fn the_wait_of_a_429_is_read_in_every_form() {
    let wait = |name, value| match read(429, &[(name, value)]) {
        Outcome::QuotaExceeded(wait) => wait,
        outcome => panic!("a 429 is about the quota, not {outcome:?}"),
    };
    let minute = Some(Duration::from_secs(60));
    for value in ["60", " 60 ", "60, 60", "7, 60", "59.1"] {
        assert_eq!(wait("retry-after", value), minute, "{value}");
    }
    assert_eq!(wait("ratelimit-reset", "60"), minute);
    assert_eq!(wait("x-ratelimit-reset", "60"), minute);
    let past = "Sun, 06 Nov 1994 08:50:37 GMT";
    assert_eq!(wait("retry-after", past), Some(Duration::ZERO));
    let dates = [
        ("retry-after", past),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ];
    assert_eq!(read(429, &dates), Outcome::QuotaExceeded(minute));
    for no_hint in ["soon", "-1", "+5", ""] {
        assert_eq!(wait("retry-after", no_hint), None, "{no_hint}");
    }
}
