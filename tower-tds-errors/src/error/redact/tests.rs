use proptest::prelude::*;

use super::{KEYS, LONGEST, SCHEMES, SECRETS, escaped, shown};

fn clean(text: &str) -> String {
    shown(text).map(String::from).unwrap_or_default()
}

#[test]
fn service_messages_are_not_redacted() {
    for text in [
        "Access token does not have the required scope/role: Missing required realm role",
        "API rate limit exceeded for 'Minute Calls'",
        "Invalid client or Invalid client credentials",
        "額度已用完",
        "is it up? ask again",
        "unknown key 0af7651916cd43dd8448eb211c80319c",
        "unknown member 3F2504E0-4F89-11D3-9A0C-0305E82C3301",
    ] {
        assert_eq!(clean(text), text);
    }
    assert_eq!(shown(" \n "), None);
}

#[test]
fn control_and_direction_characters_are_escaped() {
    assert_eq!(clean("a\u{1b}[31mb\r\nc\0"), "a\\u{1b}[31mb\\r\\nc\\u{0}");
    assert_eq!(clean("x\u{202e}y"), "x\\u{202e}y");
}

/// A value that only its name shows to be a secret.
#[test]
fn value_after_each_secret_name_is_redacted() {
    let follow = |names: &'static str, joint| {
        let names = names.split_whitespace();
        names.map(move |name| format!("sent {name}{joint}hunter and more"))
    };
    let texts = follow(SCHEMES, " ").chain(follow(SECRETS, ": "));
    for text in texts.chain(follow(KEYS, "=")).chain(follow(KEYS, ": ")) {
        assert!(!clean(&text).contains("hunter"), "{text}");
        let shouted = text.to_uppercase();
        assert!(!clean(&shouted).contains("HUNTER"), "{shouted}");
    }
    assert!(clean("sent nothing hunter and more").contains("hunter"));
}

#[test]
fn echoed_secrets_are_redacted() {
    for text in [
        "bad header Bearer CANARY here",
        "Authorization: Basic CANARY=",
        "token eyJCANARY.x.y is dead",
        "got grant_type=client_credentials&client_secret=CANARY",
        "{\"client_secret\":\"CANARY\"}",
        "client_secret: CANARY",
        "accessing endpoint (https://idp.example/introspect?token=CANARY) failed",
        "opaque CANARYCANARYCANARYCANARYCANARYCANARYCANARY",
        "bad header: bearer CANARY-0a1b2c3d4e5f",
        "cannot parse \"Bearer CANARY-0a1b2c3d4e5f\"",
        "cannot parse 'Authorization: Bearer CANARY-0a1b2c3d4e5f'",
        "Bearer: CANARY-0a1b2c3d4e5f is unknown",
        "unknown secret s3cr3tCANARYMCANARYMCANARYMCANA1",
        "no route for GET /v2/rail?key=CANARY",
        "no route for /v2/rail?token=CANARY&x=1",
        "client_secret is CANARY",
        "client_secret 'CANARY' is wrong",
        "X-Api-Key: CANARY is unknown",
        "authorization=CANARY",
        "bad request client_secret=CANARY&redirect_uri=https://x/cb",
        "got {\"url\":\"https://id/t\",\"client_secret\":\"CANARY\"}",
        "tried https://a/x,https://b/cb?code=CANARY in turn",
        "Authorization:Bearer CANARY was refused",
        "{authorization=Bearer CANARY, host=d}",
        "{\"Authorization\":\"Bearer CANARY\"}",
        "Bearer:CANARY is unknown",
        "Bearer=CANARY is unknown",
        "got {\"tokens\":\"CANARY\"} and credentials=CANARY",
        "passphrase=CANARY&otp=CANARY",
        "Cookie: lang=en; AUTH_SID2=CANARY; theme=CANARY",
        "Set-Cookie: lang=en; AUTH_SID2=CANARY",
        "tokens=3&token=CANARY",
        "code_challenge=x&code=CANARY",
        "token%3DCANARY is no parameter",
        "https%3A%2F%2Fb%2Fcb%3Fcode%3DCANARY is no address",
        "{\"clientSecret\": \"CANARY\"}",
        "X-Auth-Token: CANARY was sent",
        "db_password: CANARY",
        "secret = CANARY",
        "\"token\" : \"CANARY\"",
        "['client_secret' => 'CANARY']",
        "client_secret -> CANARY",
        "password was set to CANARY",
        "no route for https://h/p?ids=1,2&appid=CANARY",
        "no route for https://h/at/25.03,121.56?appid=CANARY",
    ] {
        let clean = clean(text);
        assert!(!clean.contains("CANARY"), "{clean}");
        let address = text.contains("://");
        assert!(address || clean.contains("[redacted]"), "{clean}");
    }
}

#[test]
fn long_text_is_cut_at_the_last_character_that_fits() {
    for c in ["x", "é", "額"] {
        assert_eq!(*escaped(&c.repeat(300)), c.repeat(LONGEST));
    }
}

proptest! {
    #[test]
    fn any_text_is_shortened_and_has_no_control_characters(text in any::<String>()) {
        for text in [escaped(&text).to_string(), clean(&text)] {
            prop_assert!(text.chars().count() <= LONGEST);
            prop_assert!(!text.chars().any(char::is_control));
        }
    }
}
