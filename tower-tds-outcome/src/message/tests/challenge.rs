use http::{HeaderMap, HeaderValue};

use super::super::challenges;

fn of(values: &[&[u8]]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for value in values {
        let value = HeaderValue::from_bytes(value).unwrap();
        headers.append("www-authenticate", value);
    }
    challenges(&headers)
}

#[test]
fn error_and_description_are_read_however_they_are_separated_quoted_and_spelled() {
    for (value, expected) in [
        // Commas or spaces, in any order.
        (
            &br#"Bearer realm="kong",error="invalid token""#[..],
            "invalid token",
        ),
        (
            br#"Bearer realm="kong", error="invalid token""#,
            "invalid token",
        ),
        (
            br#"Bearer realm="kong" error="invalid token""#,
            "invalid token",
        ),
        (
            br#"Bearer error="invalid token",realm="kong""#,
            "invalid token",
        ),
        (
            br#"Bearer error="invalid token" realm="kong""#,
            "invalid token",
        ),
        (br#"Basic realm="x", Bearer realm="k",error="dead""#, "dead"),
        (br#"Bearer last_error="old", error="dead""#, "dead"),
        // Quotes that are not escaped.
        (
            br#"Bearer error="no "Bearer" value",realm="x""#,
            r#"no "Bearer" value"#,
        ),
        (
            br#"Bearer error="no "a="b" value",realm="x""#,
            r#"no "a="b" value"#,
        ),
        (br#"Bearer error="a" = b",realm="x""#, r#"a" = b"#),
        // Case, spaces, and a realm that is not UTF-8.
        (br#"Bearer ERROR="dead""#, "dead"),
        (br#"Bearer Error = "dead", realm="x""#, "dead"),
        (b"Bearer error =dead", "dead"),
        (b"Bearer realm=\"caf\xe9\", error=\"dead\"", "dead"),
    ] {
        assert_eq!(of(&[value]), [expected]);
    }
    let both = br#"Bearer error_description="it expired", error=invalid_token"#;
    assert_eq!(of(&[both]), ["invalid_token", "it expired"]);
    assert_eq!(of(&[b"Bearer", b"Bearer error=\"late\""]), ["late"]);
    let malformed = [b"Bearer error=\"cut".as_slice(), b"Basic realm=\"error\""];
    assert_eq!(of(&malformed), [""; 0]);
    assert_eq!(of(&[b"Bearer", br#"Bearer error_uri="x""#]), [""; 0]);
}
