use http::{Response, StatusCode, header};

use super::{Challenge, Judge, Judgement};

fn judged(status: StatusCode, challenges: &[&str]) -> Judgement {
    let mut response = Response::builder().status(status);
    for challenge in challenges {
        response = response.header(header::WWW_AUTHENTICATE, *challenge);
    }
    Challenge.judge(Ok::<_, &()>(&response.body(()).unwrap()))
}

#[test]
fn a_challenge_is_believed_for_exactly_what_it_says() {
    use Judgement::{DeadToken, MissingRole, NoHeader, Other};
    for (challenge, expected) in [
        (r#"Bearer realm="kong",error="invalid token""#, DeadToken),
        (r#"Bearer realm="kong",error="Invalid Token""#, DeadToken),
        (r#"Bearer realm="kong", error="JWT expired""#, DeadToken),
        (
            r#"Bearer realm="kong",error="invalid cached token""#,
            DeadToken,
        ),
        (
            r#"Bearer realm="r", error="invalid_token", error_description="Token verification failed""#,
            DeadToken,
        ),
        (r#"Bearer error=invalid_token"#, DeadToken),
        (r#"bearer ERROR = "invalid_token""#, DeadToken),
        (
            r#"Basic realm="x", Bearer error="invalid_token""#,
            DeadToken,
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
            MissingRole,
        ),
        (r#"Bearer error="insufficient_scope""#, MissingRole),
        (
            r#"Bearer error="accessing introspection endpoint failed: invalid token""#,
            Other,
        ),
        (
            r#"Bearer error="response indicates failure, status=503""#,
            Other,
        ),
        (r#"Bearer error="JSON decoding failed""#, Other),
        (r#"Bearer error_description="invalid token""#, Other),
        (r#"Bearer realm="a, error=invalid_token""#, Other),
        (r#"Bearer realm="a\", error=\"invalid_token""#, Other),
        (r#"Bearer realm="error="invalid"#, Other),
        ("Bearer", Other),
        ("", Other),
        ("=", Other),
        ("error=\"", Other),
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
        Judgement::DeadToken
    );
}

#[test]
fn other_answers_never_touch_the_token() {
    let dead = [r#"Bearer error="invalid_token""#];
    for status in [200, 400, 403, 407, 429, 500, 503] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(judged(status, &dead), Judgement::Other, "{status}");
    }
    assert_eq!(judged(StatusCode::UNAUTHORIZED, &[]), Judgement::Other);
    let error: Result<&Response<()>, _> = Err(&());
    assert_eq!(Challenge.judge(error), Judgement::Other);
}

#[test]
fn a_403_can_name_a_missing_role_and_nothing_else() {
    for (challenge, expected) in [
        (
            r#"Bearer error="insufficient_scope", scope="rail""#,
            Judgement::MissingRole,
        ),
        (
            r#"Bearer error="Missing required realm role""#,
            Judgement::MissingRole,
        ),
        (r#"Bearer error="invalid_token""#, Judgement::Other),
        (
            r#"Bearer error="no Authorization header found""#,
            Judgement::Other,
        ),
    ] {
        let judged = judged(StatusCode::FORBIDDEN, &[challenge]);
        assert_eq!(judged, expected, "{challenge}");
    }
}
