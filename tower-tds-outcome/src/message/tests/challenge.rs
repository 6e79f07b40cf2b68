use http::{HeaderMap, HeaderValue};

use super::super::challenges;

fn of(values: &[&'static str]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append("www-authenticate", HeaderValue::from_static(value));
    }
    challenges(&headers)
}

#[test]
fn challenge_parameters_are_separated_by_commas_or_spaces() {
    for value in [
        r#"Bearer realm="kong",error="invalid token""#,
        r#"Bearer realm="kong", error="invalid token""#,
        r#"Bearer realm="kong" error="invalid token""#,
        r#"Bearer error="invalid token",realm="kong""#,
        r#"Bearer error="invalid token" realm="kong""#,
        r#"Basic realm="x", Bearer realm="kong",error="invalid token""#,
    ] {
        assert_eq!(of(&[value]), ["invalid token"], "{value}");
    }
}

#[test]
fn unescaped_quotes_stay_inside_the_value() {
    for text in [r#"no "Bearer" value"#, r#"no "a="b" value"#, r#"a" = b"#] {
        let value = format!("Bearer error=\"{text}\",realm=\"x\"");
        let mut headers = HeaderMap::new();
        headers.append("www-authenticate", HeaderValue::try_from(value).unwrap());
        assert_eq!(challenges(&headers), [text]);
    }
}

#[test]
fn error_and_error_description_are_read_separately() {
    let value = r#"Bearer error_description="it expired", error=invalid_token"#;
    assert_eq!(of(&[value]), ["invalid_token", "it expired"]);
}

#[test]
fn several_challenges_are_read_and_malformed_ones_are_ignored() {
    assert_eq!(
        of(&["Bearer", "Basic realm=\"error\"", "Bearer error=\"cut"]),
        [""; 0]
    );
    assert_eq!(of(&["Bearer", "Bearer error=\"late\""]), ["late"]);
}

#[test]
fn non_ascii_realm_does_not_hide_the_error() {
    let mut headers = HeaderMap::new();
    let latin = b"Bearer realm=\"caf\xe9\", error=\"invalid_token\"";
    headers.append("www-authenticate", HeaderValue::from_bytes(latin).unwrap());
    assert_eq!(challenges(&headers), ["invalid_token"]);
}

#[test]
fn parameter_names_ignore_case_and_spaces_around_equals_signs() {
    for value in [
        r#"Bearer ERROR="invalid_token""#,
        r#"Bearer Error = "invalid_token", realm="x""#,
        "Bearer error =invalid_token",
    ] {
        assert_eq!(of(&[value]), ["invalid_token"], "{value}");
    }
    assert_eq!(of(&[r#"Bearer error_uri="x""#]), [""; 0]);
}
