//! Replies of Keycloak and of proxies in front of it, release by release.
//!
//! The bodies of 26.5.0 are recorded. Those of other releases are taken from the source code.

use super::{Seen, reply, seen};
use Seen::{Rejected, Transient, Wrong};

struct Case {
    of: &'static str,
    status: u16,
    body: &'static [u8],
    class: Seen,
}

const fn case(of: &'static str, status: u16, body: &'static str, class: Seen) -> Case {
    Case {
        of,
        status,
        body: body.as_bytes(),
        class,
    }
}

const BAD_CREDENTIALS: &str = "Invalid client or Invalid client credentials";

/// The bodies with an error and its description.
#[test]
fn keycloak_refusals_are_classified_as_rejected() {
    // By release: 20 and later, 9 to 19, earlier.
    for (status, code, description) in [
        (403, "invalid_request", "HTTPS required"),
        (403, "access_denied", "Realm not enabled"),
        (400, "invalid_request", "Missing form parameter: grant_type"),
        (400, "unsupported_grant_type", "Unsupported grant_type"),
        (400, "invalid_request", "duplicated parameter"),
        (400, "invalid_scope", "Invalid scopes: nope"),
        // The client is unknown or disabled.
        (401, "invalid_client", BAD_CREDENTIALS),
        (400, "unauthorized_client", BAD_CREDENTIALS),
        (400, "invalid_client", "Could not find client"),
        (400, "invalid_client", "Client is not enabled"),
        // The secret is wrong, or there is none.
        (401, "unauthorized_client", BAD_CREDENTIALS),
        (401, "unauthorized_client", "Invalid client secret"),
        (400, "unauthorized_client", "Invalid client secret"),
        (400, "invalid_client", "Missing client_id parameter"),
        (400, "invalid_client", "Bearer-only not allowed"),
        (
            401,
            "unauthorized_client",
            "Client not enabled to retrieve service account",
        ),
        (401, "invalid_request", "User 'service-account-id' disabled"),
        (
            400,
            "unauthorized_client",
            "Client not allowed for direct access grants",
        ),
        (
            400,
            "unauthorized_client",
            "Unexpected error when authenticating client",
        ),
        // The assertion of a client with a key.
        (400, "invalid_client", "Multiple audiences not allowed"),
        (400, "invalid_client", "Invalid token audience"),
        (400, "invalid_client", "Token reuse detected"),
        (400, "invalid_client", "Token is not active"),
        (400, "invalid_client", "Token was issued in the future"),
        (
            400,
            "invalid_client",
            "Token was issued too far in the past to be used now",
        ),
        (400, "invalid_client", "Token jti claim is required"),
        (400, "invalid_client", "Unable to load public key"),
        (400, "invalid_client", "Invalid signature algorithm"),
        (
            400,
            "invalid_client",
            "Client authentication with signed JWT failed: Signature on JWT token failed validation",
        ),
        (400, "invalid_client", "client_assertion parameter missing"),
        (
            400,
            "invalid_client",
            "Parameter client_assertion_type is missing",
        ),
    ] {
        let body = format!(r#"{{"error":"{code}","error_description":"{description}"}}"#);
        let error = reply(status, body.as_bytes()).unwrap_err();
        assert_eq!(seen(&error), Rejected(code), "{status} {body}");
    }
}

#[test]
fn other_failures_are_classified_as_transient_or_wrong() {
    for case in [
        case(
            "an unknown realm, or one not imported yet",
            404,
            r#"{"error":"Realm does not exist"}"#,
            Transient,
        ),
        case(
            "a wrong path in the realm",
            404,
            r#"{"error":"HTTP 404 Not Found"}"#,
            Transient,
        ),
        case(
            "a path without /auth",
            404,
            "<html><body><h1>Resource not found</h1></body></html>",
            Transient,
        ),
        case(
            "another method",
            405,
            r#"{"error":"HTTP 405 Method Not Allowed"}"#,
            Transient,
        ),
        case(
            "an internal error",
            500,
            r#"{"error":"unknown_error"}"#,
            Transient,
        ),
        case(
            "an internal error, 26",
            500,
            r#"{"error":"unknown_error","error_description":"For more on this error consult the server log."}"#,
            Transient,
        ),
        case(
            "an internal error, for a browser",
            500,
            "<!DOCTYPE html>\n<html class=\"login-pf\"><head><title>Sign in</title></head></html>",
            Transient,
        ),
        case("too many requests in the queue", 503, "", Transient),
        case(
            "a proxy before a closed port",
            502,
            "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>\r\n",
            Transient,
        ),
        case(
            "a proxy before a starting server",
            503,
            "<html><body><h1>503 Service Unavailable</h1></body></html>",
            Transient,
        ),
        case(
            "a proxy that waits too long",
            504,
            "upstream request timeout",
            Transient,
        ),
        case(
            "a firewall",
            403,
            "<html><title>Request Rejected</title></html>",
            Transient,
        ),
        case(
            "a rate limit before it",
            429,
            r#"{"message":"API rate limit exceeded"}"#,
            Transient,
        ),
        case("a redirect to https", 301, "", Wrong),
        case("a redirect to a login", 302, "<html>moved</html>", Wrong),
        case(
            "a page of a captive network",
            200,
            "<html>please sign in</html>",
            Transient,
        ),
        case("nothing", 200, "", Transient),
        case(
            "the half of a reply",
            200,
            r#"{"access_token":"eyJhbGciOi"#,
            Transient,
        ),
        case(
            "a session that is over",
            200,
            r#"{"access_token":"t","expires_in":0,"refresh_expires_in":0,"token_type":"Bearer"}"#,
            Transient,
        ),
        case(
            "a session that was over before",
            200,
            r#"{"access_token":"t","expires_in":-7,"refresh_expires_in":0,"token_type":"Bearer"}"#,
            Transient,
        ),
        case(
            "a bound token",
            200,
            r#"{"access_token":"t","expires_in":60,"token_type":"DPoP"}"#,
            Wrong,
        ),
        Case {
            of: "gzip",
            status: 200,
            body: b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
            class: Transient,
        },
        Case {
            of: "no UTF-8",
            status: 400,
            body: b"{\"error\":\"\xff\"}",
            class: Wrong,
        },
    ] {
        let error = reply(case.status, case.body).unwrap_err();
        assert_eq!(seen(&error), case.class, "{}", case.of);
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
        assert_eq!(
            (token.token.secret(), token.fetched.life.as_secs()),
            ("t", 300)
        );
    }
}
