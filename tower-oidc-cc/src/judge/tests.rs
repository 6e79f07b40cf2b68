use std::convert::Infallible;
use std::fmt;

use http::{Response, StatusCode, header};

use super::{Challenge, HeadAlone, Judge, Judgement};
use crate::error::token::Kind;

fn judged(status: StatusCode, challenges: &[&str]) -> Judgement {
    let mut response = Response::builder().status(status);
    for challenge in challenges {
        response = response.header(header::WWW_AUTHENTICATE, *challenge);
    }
    Challenge.judge(Ok::<_, &Infallible>(&response.body(()).unwrap()))
}

#[test]
fn a_challenge_is_believed_for_exactly_what_it_says() {
    use Judgement::{DeadToken, MissingRole, NoHeader, Nothing, Unexplained};
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
            Nothing,
        ),
        (
            r#"Bearer error="response indicates failure, status=503""#,
            Nothing,
        ),
        (r#"Bearer error="JSON decoding failed""#, Nothing),
        (r#"Bearer error_description="invalid token""#, Unexplained),
        (r#"Bearer realm="a, error=invalid_token""#, Unexplained),
        (r#"Bearer realm="a\", error=\"invalid_token""#, Unexplained),
        (r#"Bearer realm="error="invalid"#, Unexplained),
        ("Bearer", Unexplained),
        ("", Unexplained),
        ("=", Unexplained),
        ("error=\"", Unexplained),
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
    let judged = |status| judged(StatusCode::from_u16(status).unwrap(), &dead);
    for status in [200, 204, 302, 304, 400, 403, 404, 407] {
        assert_eq!(judged(status), Judgement::Accepted, "{status}");
    }
    // A gateway may answer so before it looks at the token.
    for status in [408, 416, 423, 429, 500, 503] {
        assert_eq!(judged(status), Judgement::Nothing, "{status}");
    }
}

/// An error, and its cause.
#[derive(Debug)]
struct Says(&'static str, Option<Box<Self>>);

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Says {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.1.as_deref()?;
        Some(cause)
    }
}

#[test]
fn an_error_is_believed_for_a_cause_that_is_a_code_and_nothing_more() {
    for (cause, expected) in [
        ("invalid_token", Judgement::DeadToken),
        ("insufficient_scope", Judgement::MissingRole),
        ("401 Unauthorized", Judgement::Unexplained),
        // What httparse says of a header's name.
        ("invalid token", Judgement::Nothing),
        ("the proxy says invalid_token", Judgement::Nothing),
        ("503 Service Unavailable", Judgement::Nothing),
    ] {
        let alone = Says(cause, None);
        let under = Says("GET /v2 failed", Some(Box::new(Says(cause, None))));
        for error in [alone, under] {
            let outcome: Result<&Response<()>, _> = Err(&error);
            assert_eq!(Challenge.judge(outcome), expected, "{error:?}");
            assert_eq!(HeadAlone.judge(outcome), Judgement::Nothing, "{error:?}");
        }
    }
}

#[test]
fn a_401_without_a_challenge_is_unexplained() {
    let judged = judged(StatusCode::UNAUTHORIZED, &[]);
    assert_eq!(judged, Judgement::Unexplained);
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
fn what_was_said_of_a_token_request_below_is_not_said_of_this_token() {
    for text in ["invalid_token", "401 Unauthorized", "insufficient_scope"] {
        let below = crate::TokenError::with_source(Kind::Transport, Says(text, None));
        let judged = Challenge.judge(Err::<&Response<()>, _>(&below));
        assert_eq!(judged, Judgement::Nothing, "{text}");
    }
}
