use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use tokio::time::Instant;

use tower_tds_outcome::Secrets;

use super::{Issued, read};
use crate::{TokenError, clock::Timestamp};

fn reply(status: u16, body: &[u8]) -> Result<Issued, TokenError> {
    let response = Response::builder().status(status).body(());
    let (head, ()) = response.unwrap().into_parts();
    let body = Ok(Bytes::copy_from_slice(body));
    read(&head, body, sent(), now(), &Secrets::default())
}

fn sent() -> Timestamp {
    Timestamp {
        steady: Instant::now(),
        wall: now(),
    }
}

fn life(expires_in: &str) -> Result<Duration, TokenError> {
    let body = format!(
        r#"{{"access_token":"t","token_type":"Bearer","refresh_token":"r","expires_in":{expires_in}}}"#
    );
    reply(200, body.as_bytes()).map(|issued| issued.life)
}

#[test]
fn tokens_and_lives_are_read_in_these_forms() {
    for (expires_in, secs) in [
        ("86400", 86_400),
        ("1", 1),
        ("\"300\"", 300),
        ("\"60.0\"", 60),
        ("3600.0", 3_600),
        ("3600.9", 3_600),
        ("8.64e4", 86_400),
        ("18446744073709551615", u64::MAX),
        ("1e30", u64::MAX),
        ("1e308", u64::MAX),
        ("\"99999999999999999999999\"", u64::MAX),
        // RFC 6749 only recommends it.
        ("null", 300),
    ] {
        let life = life(expires_in).expect(expires_in);
        assert_eq!(life.as_secs(), secs, "{expires_in}");
    }
    let kinds = ["Bearer", "bearer", "bEaReR", "BearerToken", "bearertoken"];
    let kinds = kinds.map(|kind| format!(r#"{{"access_token":"t","token_type":"{kind}"}}"#));
    let bodies = [
        r#"{"access_token":"t"}"#,
        r#"{"access_token":"t","token_type":null}"#,
        "\u{feff}{\"access_token\":\"t\",\"token_type\":\"Bearer\"}",
        r#"{"access_token":"\u0074","token_type":"Bearer"}"#,
        r#"{"access_token":"t","token_type":"Bearer","error":false}"#,
        r#"{"access_token":"t","token_type":"Bearer","error":"x"}"#,
        r#"{"access_token":"t","token_type":"Bearer","more":{"a":[1]},"x":null}"#,
        // Keycloak: now; with a refresh token, up to 11 and by option; with openid.
        r#"{"access_token":"t","expires_in":300,"refresh_expires_in":0,"token_type":"Bearer","not-before-policy":0,"scope":"profile email"}"#,
        r#"{"access_token":"t","expires_in":300,"refresh_expires_in":1800,"refresh_token":"r","token_type":"bearer","not-before-policy":0,"session_state":"s","scope":"profile email"}"#,
        r#"{"access_token":"t","expires_in":300,"refresh_expires_in":0,"token_type":"Bearer","id_token":"i","not-before-policy":1795264102,"scope":"openid profile email"}"#,
    ];
    for body in bodies.into_iter().chain(kinds.iter().map(|it| &**it)) {
        let issued = reply(200, body.as_bytes()).expect(body);
        assert_eq!((issued.token.secret(), issued.life.as_secs()), ("t", 300));
    }
}

#[test]
fn malformed_replies_are_transient() {
    for expires_in in [
        "0", "-1", "-9e99", "0.9", "\"0\"", "\"-1\"", "\"\"", "\"soon\"", "\" 1\"", "true", "[1]",
        "{}", "1e999", "\"NaN\"", "\"inf\"",
    ] {
        assert!(life(expires_in).unwrap_err().is_transient(), "{expires_in}");
    }
    let deep = "[".repeat(60_000);
    assert!(life(&deep).unwrap_err().is_transient());
    for body in [
        "[]",
        "null",
        "\"t\"",
        "{",
        &deep,
        r#"{"access_token":null,"token_type":"Bearer"}"#,
        r#"{"access_token":"s","access_token":"t","token_type":"Bearer"}"#,
    ] {
        let error = reply(200, body.as_bytes()).unwrap_err();
        assert!(error.is_transient(), "{body}");
    }
}

#[test]
fn failures_are_transient_by_code_and_status() {
    let cases: &[(u16, &[u8], bool)] = &[
        // Replies of Keycloak 26.5.0.
        (404, br#"{"error":"Realm does not exist"}"#, true),
        (405, br#"{"error":"HTTP 405 Method Not Allowed"}"#, true),
        (500, br#"{"error":"unknown_error"}"#, true),
        (500, br#"{"error":"invalid_client"}"#, true),
        (503, b"", true),
        // Replies of busy servers, and of proxies in front of them.
        (400, b"<html><title>400 Cookie Too Large</title>", true),
        (400, b"<!DOCTYPE html><p>Bad request", true),
        (400, br#"{"error":"slow_down"}"#, true),
        (400, br#"{"error":"server_error"}"#, true),
        (401, br#"{"error":"temporarily_unavailable"}"#, true),
        (407, b"", true),
        (408, b"", true),
        (425, b"", true),
        (504, b"upstream request timeout", true),
        (400, b"{\"error\":\"\xff\"}", false),
        (401, b"<html>no entry</html>", false),
        (403, b"blocked", true),
        (404, b"<html>404</html>", true),
        (429, br#"{"error":"invalid_client"}"#, true),
        (502, br#"{"error":"invalid_client"}"#, true),
        (400, br#"{"error":"temporarily_unavailable"}"#, true),
        (400, br#"{"error":["invalid_client"]}"#, false),
        (301, b"", false),
        (302, br#"{"error":"invalid_client"}"#, false),
        (303, b"", false),
        (307, b"", false),
        (308, br#"{"access_token":"t","token_type":"Bearer"}"#, false),
        // Responses with status 200 that are errors.
        (200, b"", true),
        (200, b"<html>sign in</html>", true),
        (200, b"\x1f\x8b\x08\0\0\0\0\0\0\x03", true),
        (200, br#"{"error":"temporarily_unavailable"}"#, true),
        (200, br#"{"access_token":"t","token_type":"Bea"#, true),
        (200, br#"["t","Bearer",60,null]"#, true),
        (200, br#"{"access_token":7,"token_type":"Bearer"}"#, true),
        (
            200,
            b"{\"access_token\":\"\xff\",\"token_type\":\"Bearer\"}",
            true,
        ),
        (200, br#"{"token_type":"Bearer","expires_in":60}"#, true),
        (200, br#"{"error":"invalid_client"}"#, false),
        (200, br#"{"access_token":"t","token_type":"DPoP"}"#, false),
        (
            200,
            br#"{"access_token":"t","token_type":"Bearer "}"#,
            false,
        ),
        (200, br#"{"access_token":"t","token_type":""}"#, false),
    ];
    for (status, body, expected) in cases {
        let error = reply(*status, body).unwrap_err();
        let text = String::from_utf8_lossy(body);
        assert_eq!(error.is_transient(), *expected, "{status} {text}");
    }
}

/// Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110's examples.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
}

#[test]
fn token_error_keeps_the_status_of_an_unreadable_body() {
    let response = Response::builder().status(503).body(());
    let (head, ()) = response.unwrap().into_parts();
    let broken = Err(TokenError::new(crate::error::Kind::Transport));
    let error = read(&head, broken, sent(), now(), &Secrets::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(StatusCode::SERVICE_UNAVAILABLE.as_str())
    );
}

/// What servers and the gateways before them answer to a wrong, expired or unknown client.
#[test]
fn the_words_of_every_refusal_are_in_its_text() {
    for (status, body, words) in [
        (
            401,
            r#"{"error":"invalid_client","error_description":"Invalid client secret"}"#,
            "invalid_client: Invalid client secret",
        ),
        (400, r#"{"error":"invalid_grant"}"#, "invalid_grant"),
        (
            401,
            r#"{"errorCode":"invalid_client","message":"The client is disabled"}"#,
            "The client is disabled",
        ),
        (
            401,
            r#"{"type":"about:blank","title":"Unauthorized","detail":"Client 'x' has been locked"}"#,
            "Client 'x' has been locked",
        ),
        (
            401,
            "client not allowed from this network\nid 7",
            "client not allowed from this network",
        ),
        (
            503,
            "<html><head><title>Maintenance until noon</title></head></html>",
            "Maintenance until noon",
        ),
    ] {
        let error = reply(status, body.as_bytes()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(words), "{body}: {text}");
        assert!(!text.contains('\n') && text.chars().count() < 400, "{text}");
    }
    // Only a code is a code.
    let code = |body: &str| {
        reply(401, body.as_bytes())
            .unwrap_err()
            .oauth_error()
            .map(str::to_owned)
    };
    assert_eq!(
        code(r#"{"error":"invalid_client"}"#).as_deref(),
        Some("invalid_client")
    );
    assert_eq!(code("Unauthorized"), None);
}

/// Of Keycloak, release by release. One description for each status and code: the description does not matter.
#[test]
fn keycloak_refusals_are_classified_as_rejected() {
    for (status, code, description) in [
        (403, "invalid_request", "HTTPS required"),
        (403, "access_denied", "Realm not enabled"),
        (400, "invalid_request", "Missing form parameter: grant_type"),
        (400, "unsupported_grant_type", "Unsupported grant_type"),
        (400, "invalid_scope", "Invalid scopes: nope"),
        (
            401,
            "invalid_client",
            "Invalid client or Invalid client credentials",
        ),
        (
            400,
            "unauthorized_client",
            "Invalid client or Invalid client credentials",
        ),
        (
            401,
            "unauthorized_client",
            "Invalid client or Invalid client credentials",
        ),
        (400, "invalid_client", "Token is not active"),
        (401, "invalid_request", "User 'service-account-id' disabled"),
    ] {
        let body = format!(r#"{{"error":"{code}","error_description":"{description}"}}"#);
        let error = reply(status, body.as_bytes()).unwrap_err();
        assert_eq!(error.oauth_error(), Some(code), "{status} {body}");
    }
}
