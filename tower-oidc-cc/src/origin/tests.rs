use super::*;

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}

#[test]
fn origin_contains_its_own_addresses_and_no_similar_ones() {
    for (base, own, foreign) in [
        (
            "https://API.example.com/base?x=y",
            &[
                "https://api.example.com",
                "https://api.example.com/",
                "https://API.EXAMPLE.COM/a?b=c",
                "HTTPS://api.example.com/a",
                "https://api.example.com:443/a?b=c",
                "https://api.example.com:0443/",
            ][..],
            &[
                "http://api.example.com/",
                "http://api.example.com:443/",
                "https://api.example.com:8443/",
                "https://api.example.com.evil/",
                "https://api.example.com.evil.com/",
                "https://evil.com/api.example.com",
                "https://evilapi.example.com/",
                "https://example.com/",
                "https://api.example.co/",
                "https://api.example.com./",
                "https://api-example.com/",
                "https://api.example.com@evil.com/",
                "https://api.example.com:443@evil.com/",
                "https://user@api.example.com/",
                "https://user:pw@api.example.com:443/",
                "https://xn--pi-6kc.example.com/",
                "wss://api.example.com/",
                "https://api.example.com:",
                "https://api.example.com:99999",
                "https://api.example.com:443:443",
                "/a",
                "api.example.com:443",
                "*",
            ][..],
        ),
        (
            "https://api.example.com:8443",
            &["https://api.example.com:8443/a"],
            &["https://api.example.com/a", "https://api.example.com:443/a"][..],
        ),
    ] {
        let origin = Origin::from_uri(&uri(base)).unwrap();
        for text in own {
            assert!(origin.contains(&uri(text)), "{text}");
        }
        for text in foreign {
            let is_in = text.parse().is_ok_and(|uri| origin.contains(&uri));
            assert!(!is_in, "{text}");
        }
    }
}

#[test]
fn plain_http_is_for_this_machine() {
    for text in [
        "http://localhost:8080",
        "http://LOCALHOST",
        "http://127.0.0.1",
        "http://127.1.2.3:1",
        "http://[::1]:8080",
        "https://example.com",
    ] {
        let origin = Origin::from_uri(&uri(text)).expect(text);
        assert!(origin.contains(&uri(text)), "{text}");
    }
    for text in [
        "http://example.com",
        "http://localhost.evil.com",
        "http://127.0.0.1.evil.com",
        "http://10.0.0.1",
        "http://0.0.0.0",
        "http://[::ffff:10.0.0.1]",
        "http://user@localhost",
        "ftp://localhost",
        "https://id:pw@example.com",
        "/path",
    ] {
        assert!(Origin::from_uri(&uri(text)).is_err(), "{text}");
    }
}

#[test]
fn path_gets_the_origin_and_an_address_stays() {
    let origin = Origin::from_uri(&uri("https://API.example.com:8443/base")).unwrap();
    for (text, expected) in [
        ("/", "https://api.example.com:8443/"),
        ("/a/b?c=d%2Fe", "https://api.example.com:8443/a/b?c=d%2Fe"),
        ("//evil.com/a", "https://api.example.com:8443//evil.com/a"),
        ("/@evil.com", "https://api.example.com:8443/@evil.com"),
        ("https://evil.com/a", "https://evil.com/a"),
        ("evil.com:443", "evil.com:443"),
    ] {
        assert_eq!(origin.absolute(&uri(text)).to_string(), expected, "{text}");
    }
    // `OPTIONS *` is about a whole server (RFC 9110, section 9.3.7).
    let whole = origin.absolute(&uri("*"));
    assert!(origin.contains(&whole) && whole.path() == "*");
}
