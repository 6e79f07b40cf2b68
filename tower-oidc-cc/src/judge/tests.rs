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
fn only_a_challenge_that_names_a_dead_token_is_believed() {
    for (challenge, dead) in [
        (r#"Bearer realm="kong",error="invalid token""#, true),
        (r#"Bearer realm="kong",error="Invalid Token""#, true),
        (r#"Bearer realm="kong", error="JWT expired""#, true),
        (r#"Bearer realm="kong",error="invalid cached token""#, true),
        (
            r#"Bearer realm="r", error="invalid_token", error_description="Token verification failed""#,
            true,
        ),
        (r#"Bearer error=invalid_token"#, true),
        (r#"bearer ERROR = "invalid_token""#, true),
        (r#"Basic realm="x", Bearer error="invalid_token""#, true),
        (
            r#"Bearer realm="kong",error="no Authorization header found""#,
            false,
        ),
        (
            r#"Bearer error="no Bearer access token value found""#,
            false,
        ),
        (
            r#"Bearer error="accessing introspection endpoint failed: invalid token""#,
            false,
        ),
        (
            r#"Bearer error="response indicates failure, status=503""#,
            false,
        ),
        (r#"Bearer error="insufficient_scope""#, false),
        (r#"Bearer error_description="invalid token""#, false),
        (r#"Bearer realm="a, error=invalid_token""#, false),
        (r#"Bearer realm="a\", error=\"invalid_token""#, false),
        (r#"Bearer realm="error="invalid"#, false),
        ("Bearer", false),
        ("", false),
        ("=", false),
        ("error=\"", false),
    ] {
        let expected = if dead {
            Judgement::DeadToken
        } else {
            Judgement::Other
        };
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
