use super::TokenEndpoint;

#[test]
fn the_keycloak_path_is_appended_once() {
    let path = "/auth/realms/ServiceConnect/protocol/openid-connect/token";
    for (base, origin) in [
        ("https://sso.example.com", "https://sso.example.com"),
        (" https://sso.example.com// ", "https://sso.example.com"),
        ("https://auth", "https://auth"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ] {
        let endpoint = TokenEndpoint::keycloak(base, "ServiceConnect").unwrap();
        assert_eq!(*endpoint.uri(), *format!("{origin}{path}"), "{base}");
    }
}

#[test]
fn unsafe_or_malformed_addresses_are_refused() {
    for (base, realm) in [
        ("", "r"),
        ("sso.example.com", "r"),
        ("http://sso.example.com", "r"),
        ("https://id:pw@sso.example.com", "r"),
        ("https://sso.example.com/auth", "r"),
        ("https://sso.example.com/auth/", "r"),
        ("https://sso.example.com/auth/realms/r", "r"),
        ("https://sso.example.com?x=y", "r"),
        ("https://sso.example.com#x", "r"),
        ("https://sso.example.com", ""),
        ("https://sso.example.com", "a/b"),
        ("https://sso.example.com", "a b"),
        ("https://sso.example.com", ".."),
        ("https://sso.example.com", "r?x"),
    ] {
        let refused = TokenEndpoint::keycloak(base, realm).is_err();
        assert!(refused, "{base} {realm}");
    }
    for address in ["http://10.0.0.1:8080", "/token", "https://id:pw@sso/token"] {
        assert!(TokenEndpoint::new(address.parse().unwrap()).is_err());
        assert!(TokenEndpoint::discover(address).is_err(), "{address}");
    }
    assert!(TokenEndpoint::discover("https://sso.example.com?x").is_err());
}

#[test]
fn endpoint_query_is_kept_and_hidden_in_debug() {
    let uri = "https://sso.example.com/token?tenant=1234".parse().unwrap();
    let endpoint = TokenEndpoint::new(uri).unwrap();
    assert_eq!(endpoint.uri().query(), Some("tenant=1234"));
    let text = format!("{endpoint:?} {endpoint:#?}");
    assert!(text.contains("https://sso.example.com/token"), "{text}");
    assert!(!text.contains("1234"), "{text}");
}
