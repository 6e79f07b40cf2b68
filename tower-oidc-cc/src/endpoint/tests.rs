use super::TokenEndpoint;

const PATH: &str = "/auth/realms/ServiceConnect/protocol/openid-connect/token";

#[test]
fn the_keycloak_path_is_appended_once() {
    for base in [
        "https://sso.example.com",
        "https://sso.example.com/",
        " https://sso.example.com// ",
    ] {
        let endpoint = TokenEndpoint::keycloak(base, "ServiceConnect").unwrap();
        assert_eq!(
            *endpoint.uri(),
            *format!("https://sso.example.com{PATH}"),
            "{base}"
        );
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
        assert!(
            TokenEndpoint::keycloak(base, realm).is_err(),
            "{base} {realm}"
        );
    }
}

#[test]
fn plain_http_endpoint_is_accepted_on_loopback_only() {
    let base = "http://127.0.0.1:8080";
    assert!(TokenEndpoint::keycloak(base, "r").is_ok());
    assert!(TokenEndpoint::new(base.parse().unwrap()).is_ok());
    assert!(TokenEndpoint::discover(base).is_ok());
    let base = "http://10.0.0.1:8080";
    assert!(TokenEndpoint::keycloak(base, "r").is_err());
    assert!(TokenEndpoint::new(base.parse().unwrap()).is_err());
    assert!(TokenEndpoint::discover(base).is_err());
}

#[test]
fn endpoint_query_is_kept_and_hidden_in_debug() {
    let uri = "https://sso.example.com/token?tenant=1234".parse().unwrap();
    let endpoint = TokenEndpoint::new(uri).unwrap();
    assert_eq!(endpoint.uri().query(), Some("tenant=1234"));
    assert!(!format!("{endpoint:?}").contains("1234"));
}

#[cfg(feature = "private-key-jwt")]
#[test]
fn assertion_audience_omits_the_default_port() {
    for (address, audience) in [
        ("https://sso.example.com/t", "https://sso.example.com/t"),
        ("https://sso.example.com:443/t", "https://sso.example.com/t"),
        (
            "https://SSO.example.com:8443/t?x=y",
            "https://SSO.example.com:8443/t",
        ),
        ("http://[::1]:80/t", "http://[::1]/t"),
        ("http://127.0.0.1:443/t", "http://127.0.0.1:443/t"),
    ] {
        let endpoint = TokenEndpoint::new(address.parse().unwrap()).unwrap();
        assert_eq!(endpoint.audience(), audience);
    }
}

#[test]
fn host_named_auth_is_accepted() {
    let endpoint = TokenEndpoint::keycloak("https://auth", "r").unwrap();
    assert_eq!(
        endpoint.uri().path(),
        "/auth/realms/r/protocol/openid-connect/token"
    );
    assert!(TokenEndpoint::keycloak("https://host/auth/", "r").is_err());
}
