use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{Credentials, basic};

#[test]
fn surrounding_white_space_is_trimmed() {
    let credentials = Credentials::new(" id\t", "\u{feff}secret\u{200b}\r\n").unwrap();
    assert_eq!(credentials.client_id, "id");
    assert_eq!(*credentials.fields[1].1, "secret");
}

#[test]
fn credentials_error_names_the_field_and_the_reason() {
    for (id, secret, field, reason) in [
        ("", "s", "client id", "empty"),
        (" \n", "s", "client id", "empty"),
        ("a\tb", "s", "client id", "control character"),
        ("id", "", "client secret", "empty"),
        ("id", "\t", "client secret", "empty"),
        ("id", "two\nlines", "client secret", "control character"),
        ("id", "nul\0", "client secret", "control character"),
    ] {
        for made in [Credentials::new(id, secret), Credentials::basic(id, secret)] {
            let text = made.unwrap_err().to_string();
            assert!(text.contains(field) && text.contains(reason), "{text}");
        }
    }
}

#[test]
fn spaces_inside_are_part_of_id_and_secret() {
    // RFC 6749, appendices A.1 and A.2.
    let credentials = Credentials::new("an id", "three small words").unwrap();
    assert_eq!(credentials.client_id, "an id");
    assert_eq!(*credentials.fields[1].1, "three small words");
    assert_eq!(pair("an id", "two words"), "an+id:two+words");
}

#[test]
fn debug_shows_the_id_and_no_secret() {
    for credentials in [Credentials::new, Credentials::basic] {
        let credentials = credentials("id", "canary").unwrap();
        let text = format!("{credentials:?} {credentials:#?}");
        assert!(text.contains("id"), "{text}");
        assert!(
            !text.contains("canary") && !text.contains("Y2FuYXJ5"),
            "{text}"
        );
    }
}

fn pair(id: &str, secret: &str) -> String {
    let header = basic(id, secret).unwrap();
    assert!(header.is_sensitive());
    let encoded = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
}

#[test]
fn id_and_secret_are_form_encoded_before_they_are_joined() {
    for (id, secret, expected) in [
        ("id", "secret", "id:secret"),
        ("a:b", "c:d", "a%3Ab:c%3Ad"),
        ("id", "100%", "id:100%25"),
        ("id", "a+b", "id:a%2Bb"),
        ("id", "é", "id:%C3%A9"),
        ("id", "&=/?#\"\\", "id:%26%3D%2F%3F%23%22%5C"),
        ("id", "*-._~", "id:*-._%7E"),
    ] {
        assert_eq!(pair(id, secret), expected);
    }
}

#[test]
fn basic_header_matches_the_rfc_example() {
    // The example of RFC 6749, section 2.3.1.
    let header = basic("s6BhdRkqt3", "7Fjfp0ZBr1KtDRbnfVdmIw").unwrap();
    assert_eq!(header, "Basic czZCaGRSa3F0Mzo3RmpmcDBaQnIxS3REUmJuZlZkbUl3");
}
