use http::Uri;

use super::Origin;

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}

#[test]
fn origin_matches_itself_and_no_similar_uri() {
    let origin = Origin::from_uri(&uri("https://api.example.com/base")).unwrap();
    for (text, expected) in [
        ("https://api.example.com", true),
        ("https://api.example.com/", true),
        ("https://api.example.com:443/a?b=c", true),
        ("https://API.Example.COM/a", true),
        ("HTTPS://api.example.com/a", true),
        ("http://api.example.com/", false),
        ("http://api.example.com:443/", false),
        ("https://api.example.com:8443/", false),
        ("https://api.example.com:0443/", true),
        ("https://api.example.com.evil/", false),
        ("https://api.example.com.evil.com/", false),
        ("https://evil.com/api.example.com", false),
        ("https://evilapi.example.com/", false),
        ("https://example.com/", false),
        ("https://api.example.co/", false),
        ("https://api.example.com./", false),
        ("https://api-example.com/", false),
        ("https://api.example.com@evil.com/", false),
        ("https://api.example.com:443@evil.com/", false),
        ("https://user@api.example.com/", false),
        ("https://user:pw@api.example.com/", false),
        ("https://user:pw@api.example.com:443/", false),
        ("https://xn--pi-6kc.example.com/", false),
        ("wss://api.example.com/", false),
        ("/a", false),
        ("api.example.com:443", false),
    ] {
        assert_eq!(origin.contains(&uri(text)), expected, "{text}");
    }
}

#[test]
fn malformed_ports_match_no_origin() {
    let origin = Origin::from_uri(&uri("https://api.example.com")).unwrap();
    for text in [
        "https://api.example.com:",
        "https://api.example.com:99999",
        "https://api.example.com:443:443",
    ] {
        if let Ok(uri) = text.parse::<Uri>() {
            assert!(!origin.contains(&uri), "{text}");
            assert!(Origin::from_uri(&uri).is_err(), "{text}");
        }
    }
}

#[test]
fn origin_with_a_port_matches_that_port_only() {
    let origin = Origin::from_uri(&uri("https://api.example.com:8443")).unwrap();
    assert!(origin.contains(&uri("https://api.example.com:8443/a")));
    assert!(!origin.contains(&uri("https://api.example.com/a")));
    assert!(!origin.contains(&uri("https://api.example.com:443/a")));
}

#[test]
fn plain_http_origin_requires_the_loopback_constructor() {
    for text in [
        "http://localhost:8080",
        "http://LOCALHOST",
        "http://127.0.0.1",
        "http://127.1.2.3:1",
        "http://[::1]:8080",
    ] {
        let origin = Origin::loopback(&uri(text)).expect(text);
        assert!(origin.contains(&uri(text)), "{text}");
        assert!(Origin::from_uri(&uri(text)).is_err(), "{text}");
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
        "/path",
    ] {
        assert!(Origin::loopback(&uri(text)).is_err(), "{text}");
    }
    assert!(Origin::loopback(&uri("https://example.com")).is_ok());
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
    // `OPTIONS *` asks about a whole server (RFC 9110, section 9.3.7).
    let whole = origin.absolute(&uri("*"));
    assert!(origin.contains(&whole));
    assert_eq!(whole.path(), "*");
}
