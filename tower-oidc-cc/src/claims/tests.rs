use http::HeaderValue;

use super::realm_roles;

fn roles(token: &str) -> Option<Vec<String>> {
    realm_roles(&HeaderValue::from_str(&format!("Bearer {token}")).unwrap())
}

#[test]
fn realm_roles_are_read_and_nothing_else_is_asked_of_the_token() {
    // {"alg":"none"} . {"realm_access":{"roles":["live","offline_access"]},"azp":"c"} . garbage
    let token = "eyJhbGciOiJub25lIn0.eyJyZWFsbV9hY2Nlc3MiOnsicm9sZXMiOlsibGl2ZSIsIm9mZmxpbmVfYWNjZXNzIl19LCJhenAiOiJjIn0.x";
    assert_eq!(roles(token).unwrap(), ["live", "offline_access"]);
    // {"realm_access":{}} and {"azp":"c"}
    assert_eq!(roles("e30.eyJyZWFsbV9hY2Nlc3MiOnt9fQ.x"), Some(vec![]));
    assert_eq!(roles("e30.eyJhenAiOiJjIn0.x"), None);
}

#[test]
fn a_token_that_is_no_jwt_is_no_panic() {
    for token in ["opaque", "a.b", "a.b.c", "..", "e30..", "a.b.c.d", "é.é.é"] {
        assert_eq!(roles(token), None, "{token}");
    }
}
