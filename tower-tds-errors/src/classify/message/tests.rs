use proptest::prelude::*;

use super::{candidates, text};

mod challenge;

fn first(body: &str) -> Option<String> {
    candidates(body).into_iter().next()
}

#[test]
fn one_sentence_comes_out_of_every_format() {
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
fn a_last_character_that_was_cut_is_left_out() {
    assert_eq!(text(b"caf\xc3"), Some("caf"));
    assert_eq!(text(b"caf\xc3 "), None);
}

#[test]
fn unescaped_quotes_of_the_template_stay_in_the_message() {
    let body = "{\n  \"message\":\"plan \"basic\" ended\",\n  \"request_id\":\"1f\"\n}";
    assert_eq!(first(body).as_deref(), Some("plan \"basic\" ended"));
}

#[test]
fn an_escaped_solidus_is_read_even_where_the_json_is_cut() {
    assert_eq!(
        first(r#"{"message":"scope\/role: Mis"#).as_deref(),
        Some("scope/role: Mis")
    );
}

#[test]
fn what_has_no_sentence_says_nothing() {
    for body in ["", " \n", "[1]", "{}", "{\"message\":7}"] {
        assert!(candidates(body).is_empty(), "{body:?}");
    }
}

#[test]
fn problem_details_say_what_is_special_first() {
    let body = r#"{"type":"about:blank","title":"Maintenance","detail":"back at noon"}"#;
    assert_eq!(candidates(body), ["back at noon", "Maintenance"]);
}

proptest! {
    #[test]
    fn no_body_panics(body in any::<String>()) {
        candidates(&body);
    }

    #[test]
    fn no_markup_panics(body in "[<>/pPtitlemsag é\"{:}]{0,80}") {
        candidates(&body);
    }
}
