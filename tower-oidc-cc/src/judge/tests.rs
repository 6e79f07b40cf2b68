use std::convert::Infallible;

use http::{Response, StatusCode, header};

use super::{Challenge, Judge, Judgement};

fn judged(status: StatusCode, challenges: &[&str]) -> Judgement {
    let mut response = Response::builder().status(status);
    for challenge in challenges {
        response = response.header(header::WWW_AUTHENTICATE, *challenge);
    }
    Challenge.judge(Ok::<_, &Infallible>(&response.body(()).unwrap()))
}

#[test]
fn a_401_refuses_the_token_unless_it_names_a_role_or_a_header() {
    use Judgement::{MissingRole, NoHeader, Refused};
    for (challenge, expected) in [
        (r#"Bearer realm="kong",error="invalid token""#, Refused),
        (r#"Bearer realm="kong",error="Invalid Token""#, Refused),
        (r#"Bearer realm="kong", error="JWT expired""#, Refused),
        (
            r#"Bearer realm="kong",error="invalid cached token""#,
            Refused,
        ),
        (
            r#"Bearer realm="r", error="invalid_token", error_description="Token verification failed""#,
            Refused,
        ),
        (r#"Bearer error=invalid_token"#, Refused),
        (r#"bearer ERROR = "invalid_token""#, Refused),
        (r#"Basic realm="x", Bearer error="invalid_token""#, Refused),
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
            MissingRole,
        ),
        (r#"Bearer error="insufficient_scope""#, MissingRole),
        (
            r#"Bearer error="accessing introspection endpoint failed: invalid token""#,
            Refused,
        ),
        (
            r#"Bearer error="response indicates failure, status=503""#,
            Refused,
        ),
        (r#"Bearer error="JSON decoding failed""#, Refused),
        (r#"Bearer error_description="invalid token""#, Refused),
        (r#"Bearer realm="a, error=invalid_token""#, Refused),
        (r#"Bearer realm="a\", error=\"invalid_token""#, Refused),
        (r#"Bearer realm="error="invalid"#, Refused),
        ("Bearer", Refused),
        ("", Refused),
        ("=", Refused),
        ("error=\"", Refused),
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
        Judgement::Refused
    );
}

#[test]
fn other_statuses_never_refuse_the_token() {
    let dead = [r#"Bearer error="invalid_token""#];
    let judged = |status| judged(StatusCode::from_u16(status).unwrap(), &dead);
    for status in [200, 204, 302, 304, 400, 403, 404, 407] {
        assert_eq!(judged(status), Judgement::Accepted, "{status}");
    }
    // A gateway may answer so before it looks at the token.
    for status in [408, 416, 423, 429, 500, 503] {
        assert_eq!(judged(status), Judgement::Nothing, "{status}");
    }
}

#[test]
fn a_401_without_a_challenge_refuses_the_token() {
    let judged = judged(StatusCode::UNAUTHORIZED, &[]);
    assert_eq!(judged, Judgement::Refused);
}

#[test]
fn status_403_reports_a_missing_role_and_never_refuses() {
    for (challenge, expected) in [
        (
            r#"Bearer error="insufficient_scope", scope="rail""#,
            Judgement::MissingRole,
        ),
        (
            r#"Bearer error="Missing required realm role""#,
            Judgement::MissingRole,
        ),
        (r#"Bearer error="invalid_token""#, Judgement::Accepted),
        (
            r#"Bearer error="no Authorization header found""#,
            Judgement::Accepted,
        ),
    ] {
        let judged = judged(StatusCode::FORBIDDEN, &[challenge]);
        assert_eq!(judged, expected, "{challenge}");
    }
}

#[test]
fn grpc_status_in_the_head_refuses_the_token_or_names_a_role() {
    use Judgement::{Accepted, MissingRole, Nothing, Refused};
    let judged = |kind: Option<&str>, status: Option<&str>| {
        let mut response = Response::builder();
        if let Some(kind) = kind {
            response = response.header(header::CONTENT_TYPE, kind);
        }
        if let Some(status) = status {
            response = response.header("grpc-status", status);
        }
        Challenge.judge(Ok::<_, &Infallible>(&response.body(()).unwrap()))
    };
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web+proto",
        "Application/GRPC; charset=utf-8",
    ] {
        for (status, expected) in [
            (Some("16"), Refused),
            (Some(" 16 "), Refused),
            (Some("7"), MissingRole),
            (Some("0"), Accepted),
            (Some("5"), Accepted),
            (Some("3"), Accepted),
            (Some("116"), Accepted),
            (None, Accepted),
            // Like a 503, 504, 429 or 500, which a gateway can send before it checks a token.
            (Some("14"), Nothing),
            (Some("4"), Nothing),
            (Some("8"), Nothing),
            (Some("13"), Nothing),
            (Some("2"), Nothing),
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
