use super::Credentials;

#[test]
fn white_space_around_is_cut_off() {
    let credentials = Credentials::new(" id\t", "\u{feff}secret\u{200b}\r\n").unwrap();
    assert_eq!(*credentials.client_id, "id");
    assert!(matches!(&credentials.proof, super::Proof::Post(s) if **s == "secret"));
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
        for made in [Credentials::new(id, secret), Credentials::basic(id, secret)] {
            let text = made.unwrap_err().to_string();
            assert!(text.contains(field) && text.contains(reason), "{text}");
        }
    }
}

#[test]
fn debug_shows_the_method_and_no_secret() {
    for (credentials, method) in [
        (
            Credentials::new("id", "canary").unwrap(),
            "client_secret_post",
        ),
        (
            Credentials::basic("id", "canary").unwrap(),
            "client_secret_basic",
        ),
        (
            Credentials::assertion("id", "canary").unwrap(),
            "client_assertion",
        ),
    ] {
        let text = format!("{credentials:?} {credentials:#?}");
        assert!(text.contains("id") && text.contains(method), "{text}");
        assert!(
            !text.contains("canary") && !text.contains("Y2FuYXJ5"),
            "{text}"
        );
    }
}
