//! Replies of Keycloak, release by release.
//!
//! The bodies of 26.5.0 are recorded. Those of other releases are taken from the source code.

use super::reply;

const BAD_CREDENTIALS: &str = "Invalid client or Invalid client credentials";

/// One description for each status and code: the description does not matter.
#[test]
fn keycloak_refusals_are_classified_as_rejected() {
    for (status, code, description) in [
        (403, "invalid_request", "HTTPS required"),
        (403, "access_denied", "Realm not enabled"),
        (400, "invalid_request", "Missing form parameter: grant_type"),
        (400, "unsupported_grant_type", "Unsupported grant_type"),
        (400, "invalid_scope", "Invalid scopes: nope"),
        (401, "invalid_client", BAD_CREDENTIALS),
        (400, "unauthorized_client", BAD_CREDENTIALS),
        (401, "unauthorized_client", BAD_CREDENTIALS),
        (400, "invalid_client", "Token is not active"),
        (401, "invalid_request", "User 'service-account-id' disabled"),
    ] {
        let body = format!(r#"{{"error":"{code}","error_description":"{description}"}}"#);
        let error = reply(status, body.as_bytes()).unwrap_err();
        assert_eq!(error.oauth_error(), Some(code), "{status} {body}");
    }
}

#[test]
fn keycloak_token_replies_are_accepted() {
    for body in [
        r#"{"access_token":"t","expires_in":300,"refresh_expires_in":0,"token_type":"Bearer","not-before-policy":0,"scope":"profile email"}"#,
        // The client's option for small letters; a refresh token, up to 11 and by option; openid.
        r#"{"access_token":"t","expires_in":300,"refresh_expires_in":0,"token_type":"bearer","not-before-policy":0,"scope":""}"#,
        r#"{"access_token":"t","expires_in":300,"refresh_expires_in":1800,"refresh_token":"r","token_type":"bearer","not-before-policy":0,"session_state":"s","scope":"profile email"}"#,
        r#"{"access_token":"t","expires_in":300,"refresh_expires_in":0,"token_type":"Bearer","id_token":"i","not-before-policy":1795264102,"scope":"openid profile email"}"#,
    ] {
        let token = reply(200, body.as_bytes()).unwrap();
        assert_eq!((token.token.secret(), token.life.as_secs()), ("t", 300));
    }
}
