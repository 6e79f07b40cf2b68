use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use tokio::time::Instant;

use proptest::prelude::*;
use tower_tds_outcome::Secrets;

use super::{AccessToken, Issued, LONGEST, MIN_DELAY, read};
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
        (200, br#"{"error":{"code":7}}"#, false),
        (200, br#"{"error":"x","access_token":null}"#, false),
        // A wrong secret or setting, by Kong, Okta, Apigee, Auth0, and in words of no standard.
        (401, b"", false),
        (401, br#"{"message":"Unauthorized"}"#, false),
        (401, br#"{"errorCode":"invalid_client"}"#, false),
        (401, br#"{"ErrorCode":"invalid_client","Error":"x"}"#, false),
        (401, br#"{"error":"access_denied"}"#, false),
        (401, br#"{"error":{"code":"x"}}"#, false),
        (400, br#"{"error":"invalid_target"}"#, false),
        (400, br#"{"error":"of_no_standard"}"#, false),
        (400, br#"{"message":"no"}"#, false),
        (400, b"missing client_id", false),
        (400, b"", false),
        (403, br#"{"error":"invalid_target"}"#, false),
        (200, br#"{"access_token":""}"#, false),
        (200, br#"{"access_token":"a b"}"#, false),
        (200, br#"{"access_token":"a\r\nx: y"}"#, false),
        (200, br#"{"access_token":"\u00e9"}"#, false),
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
    let broken = Err(TokenError::new(crate::error::ErrorKind::Transport));
    let error = read(&head, broken, sent(), now(), &Secrets::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(StatusCode::SERVICE_UNAVAILABLE.as_str())
    );
}

/// Answers of servers, and of gateways before them, to a wrong, expired or unknown client.
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

/// Of Keycloak, release by release. Its descriptions do not matter.
#[test]
fn keycloak_refusals_are_classified_as_rejected() {
    for (status, code) in [
        (403, "invalid_request"),
        (403, "access_denied"),
        (400, "invalid_request"),
        (400, "unsupported_grant_type"),
        (400, "invalid_scope"),
        (401, "invalid_client"),
        (400, "unauthorized_client"),
        (401, "unauthorized_client"),
        (400, "invalid_client"),
        (401, "invalid_request"),
    ] {
        let body = format!(r#"{{"error":"{code}","error_description":"HTTPS required"}}"#);
        let error = reply(status, body.as_bytes()).unwrap_err();
        assert_eq!(error.oauth_error(), Some(code), "{status} {body}");
    }
}

proptest! {
    #[test]
    fn renewal_lies_between_arrival_and_expiry(
        life_ms in 1u64..u64::MAX,
        late_ms in 0u64..30_000,
        draw in 0.0f64..1.0,
        before in prop::option::of(any::<u64>().prop_map(Duration::from_millis)),
    ) {
        let (sent, life) = (sent(), Duration::from_millis(life_ms));
        let now = sent.checked_add(Duration::from_millis(late_ms)).unwrap();
        let token = AccessToken::new("t").unwrap();
        let issued = Issued { token, sent, life, is_own: true };
        match issued.lifetime_at(now, before, draw) {
            None => prop_assert!(late_ms >= life_ms),
            Some(plan) => {
                prop_assert!(late_ms < life_ms);
                let (renewed, left) = (plan.renew_at.left_at(now), plan.expires_at.left_at(now));
                prop_assert!(renewed <= left);
                prop_assert_eq!(plan.expires_at, sent.checked_add(life.min(LONGEST)).unwrap());
                // At most one renewal in half of the remaining life, or in `MIN_DELAY`: no loop.
                prop_assert!(renewed >= left.mul_f64(0.49).min(MIN_DELAY));
            }
        }
    }
}
