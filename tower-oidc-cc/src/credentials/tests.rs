use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{Credentials, basic};

#[test]
fn blanks_around_are_cut_off_and_spaces_inside_are_kept() {
    for (id, secret, trimmed) in [
        (" id\t", "\u{feff}secret\u{200b}\r\n", ("id", "secret")),
        // RFC 6749, appendices A.1 and A.2.
        ("an id", "three small words", ("an id", "three small words")),
    ] {
        let credentials = Credentials::new(id, secret).unwrap();
        assert_eq!(
            (&*credentials.client_id, &**credentials.fields[1].1),
            trimmed
        );
    }
}

#[test]
fn credentials_error_names_the_field_and_the_reason() {
    for (id, secret, field, reason) in [
        ("", "s", "client id", "empty"),
        (" \n", "s", "client id", "empty"),
        ("a\tb", "s", "client id", "control character"),
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
fn id_and_secret_are_form_encoded_before_they_are_joined() {
    for (id, secret, expected) in [
        ("an id", "two words", "an+id:two+words"),
        ("a:b", "c:d", "a%3Ab:c%3Ad"),
        ("id", "100%", "id:100%25"),
        ("id", "a+b", "id:a%2Bb"),
        ("id", "é", "id:%C3%A9"),
        ("id", "&=/?#\"\\", "id:%26%3D%2F%3F%23%22%5C"),
        ("id", "*-._~", "id:*-._%7E"),
    ] {
        let header = basic(id, secret).unwrap();
        assert!(header.is_sensitive());
        let encoded = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
        let pair = BASE64_STANDARD.decode(encoded).unwrap();
        assert_eq!(String::from_utf8(pair).unwrap(), expected);
    }
    // The example of RFC 6749, section 2.3.1.
    let header = basic("s6BhdRkqt3", "7Fjfp0ZBr1KtDRbnfVdmIw").unwrap();
    assert_eq!(header, "Basic czZCaGRSa3F0Mzo3RmpmcDBaQnIxS3REUmJuZlZkbUl3");
}
