use proptest::prelude::*;

use super::{said, text};

mod challenge;

fn first(body: &str) -> Option<String> {
    said(body.as_bytes()).into_iter().next()
}

#[test]
fn every_format_gives_the_same_message() {
    for body in [
        "{\n  \"message\":\"API rate limit exceeded\",\n  \"request_id\":\"1f\"\n}",
        r#"{"message":"API rate limit exceeded"}"#,
        r#"{"error":{"code":1,"message":"API rate limit exceeded"}}"#,
        r#""API rate limit exceeded""#,
        "API rate limit exceeded\nrequest_id: 1f",
        "\u{feff}API rate limit exceeded\r\n",
        "<?xml version=\"1.0\"?>\n<error>\n <message>API rate limit exceeded</message>\n</error>",
        "<html><head><title>API rate limit exceeded</title></head><body></body></html>",
        "<HTML><TITLE>Error</TITLE><P class=x>API <b>rate</b>\n limit exceeded</P>",
        "<h1>API rate limit exceeded",
        "<error><code>429</code><message>API rate limit exceeded</message></error>",
        "<pre>Error</pre><p>API rate limit exceeded</p>",
    ] {
        assert_eq!(
            first(body).as_deref(),
            Some("API rate limit exceeded"),
            "{body}"
        );
    }
}

#[test]
fn incomplete_last_character_is_left_out() {
    assert_eq!(text(b"caf\xc3"), Some("caf"));
    assert_eq!(text(b"caf\xc3 "), None);
}

#[test]
fn unescaped_quotes_of_the_template_stay_in_the_message() {
    let body = "{\n  \"message\":\"plan \"basic\" ended\",\n  \"request_id\":\"1f\"\n}";
    assert_eq!(first(body).as_deref(), Some("plan \"basic\" ended"));
}

#[test]
fn escaped_slash_is_unescaped_in_truncated_json() {
    assert_eq!(
        first(r#"{"message":"scope\/role: Mis"#).as_deref(),
        Some("scope/role: Mis")
    );
}

#[test]
fn body_without_text_gives_no_message() {
    for body in ["", " \n", "[1]", "{}", "{\"message\":7}"] {
        assert!(said(body.as_bytes()).is_empty(), "{body:?}");
    }
}

#[test]
fn problem_details_give_the_detail_before_the_title() {
    let body = r#"{"type":"about:blank","title":"Maintenance","detail":"back at noon"}"#;
    assert_eq!(said(body.as_bytes()), ["back at noon", "Maintenance"]);
}

proptest! {
    #[test]
    fn arbitrary_bodies_do_not_panic(body in any::<String>()) {
        drop(said(body.as_bytes()));
    }

    #[test]
    fn arbitrary_markup_does_not_panic(body in "[<>/pPtitlemsag é\"{:}]{0,80}") {
        drop(said(body.as_bytes()));
    }
}
