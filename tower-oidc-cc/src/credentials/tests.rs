use super::Credentials;

#[test]
fn white_space_around_is_cut_off() {
    let credentials = Credentials::new(" id\t", "\u{feff}secret\u{200b}\r\n").unwrap();
    assert_eq!(
        credentials.form(),
        "grant_type=client_credentials&client_id=id&client_secret=secret"
    );
}

#[test]
fn reserved_characters_are_form_encoded() {
    let credentials = Credentials::new("a&b", "100%+=é:/").unwrap();
    assert_eq!(
        credentials.form(),
        "grant_type=client_credentials&client_id=a%26b&client_secret=100%25%2B%3D%C3%A9%3A%2F"
    );
}

#[test]
fn the_refusal_names_the_field_and_the_reason() {
    for (id, secret, field, reason) in [
        ("", "s", "client id", "empty"),
        (" \n", "s", "client id", "empty"),
        ("a b", "s", "client id", "white space"),
        ("id", "", "client secret", "empty"),
        ("id", "\t", "client secret", "empty"),
        ("id", "two words", "client secret", "white space"),
        ("id", "two\nlines", "client secret", "white space"),
        ("id", "nul\0", "client secret", "white space"),
    ] {
        let text = Credentials::new(id, secret).unwrap_err().to_string();
        assert!(text.contains(field) && text.contains(reason), "{text}");
    }
}
