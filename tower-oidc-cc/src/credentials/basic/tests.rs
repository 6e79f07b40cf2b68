use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::header;

fn pair(id: &str, secret: &str) -> String {
    let header = header(id, secret).unwrap();
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
fn the_header_has_the_letters_of_the_rfc() {
    // The example of RFC 6749, section 2.3.1.
    let header = header("s6BhdRkqt3", "7Fjfp0ZBr1KtDRbnfVdmIw").unwrap();
    assert_eq!(header, "Basic czZCaGRSa3F0Mzo3RmpmcDBaQnIxS3REUmJuZlZkbUl3");
}
