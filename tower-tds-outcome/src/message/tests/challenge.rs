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

/// Separated by commas or blanks, in any order; with quotes that are not escaped; in any case, with blanks around the `=`.
const CHALLENGES: &str = r#"
Bearer realm="kong",error="invalid token" -> invalid token
Bearer realm="kong", error="invalid token" -> invalid token
Bearer realm="kong" error="invalid token" -> invalid token
Bearer error="invalid token",realm="kong" -> invalid token
Bearer error="invalid token" realm="kong" -> invalid token
Basic realm="x", Bearer realm="k",error="dead" -> dead
Bearer last_error="old", error="dead" -> dead
Bearer error="no "Bearer" value",realm="x" -> no "Bearer" value
Bearer error="no "a="b" value",realm="x" -> no "a="b" value
Bearer error="a" = b",realm="x" -> a" = b
Bearer ERROR="dead" -> dead
Bearer Error = "dead", realm="x" -> dead
Bearer error =dead -> dead
"#;

#[test]
fn error_and_description_are_read_however_they_are_separated_quoted_and_spelled() {
    for (value, words) in CHALLENGES
        .lines()
        .filter_map(|line| line.split_once(" -> "))
    {
        assert_eq!(of(&[value.as_bytes()]), [words]);
    }
    let latin = b"Bearer realm=\"caf\xe9\", error=\"dead\"";
    assert_eq!(of(&[latin]), ["dead"]);
    let both = br#"Bearer error_description="it expired", error=invalid_token"#;
    assert_eq!(of(&[both]), ["invalid_token", "it expired"]);
    assert_eq!(of(&[b"Bearer", b"Bearer error=\"late\""]), ["late"]);
    let malformed = [b"Bearer error=\"cut".as_slice(), b"Basic realm=\"error\""];
    assert_eq!(of(&malformed), [""; 0]);
    assert_eq!(of(&[b"Bearer", br#"Bearer error_uri="x""#]), [""; 0]);
}
