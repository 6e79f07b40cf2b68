use proptest::prelude::*;

use http::HeaderMap;

use super::{said, text};

mod challenge;

fn first(body: &str) -> Option<String> {
    said(&HeaderMap::new(), body.as_bytes()).into_iter().next()
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

/// Bodies of AWS, Google, Okta, Apigee, WSO2, JSON:API, Elasticsearch, Kong's `jwt`, Keycloak's API, others, SOAP, Tomcat and Akamai.
const SERVERS: &str = r#"
{"Message":"not authorized"} -> not authorized
{"error":{"code":403,"message":"bad key","status":"DENIED"}} -> bad key
{"errorCode":"E0000004","errorSummary":"failed","errorCauses":[]} -> failed
{"fault":{"faultstring":"Invalid ApiKey","detail":{"errorcode":"x"}}} -> Invalid ApiKey
{"fault":{"code":900901,"message":"Invalid","description":"of API"}} -> Invalid
{"errors":[{"status":"422","title":"Attribute","detail":"too short"}]} -> too short
{"data":null,"errors":[{"message":"no such field","locations":[]}]} -> no such field
{"detail":[{"loc":["query","x"],"msg":"field required"}]} -> field required
{"error":{"type":"x","reason":"no such index"},"status":404} -> no such index
{"errcode":40001,"errmsg":"invalid credential"} -> invalid credential
{"errors":["quota exceeded"]} -> quota exceeded
{"exp":"token expired"} -> token expired
{ "message":"plan "basic" ended", "request_id":"1f" } -> plan "basic" ended
{"errorMessage":"no such realm"} -> no such realm
{"code":"X7","description":"key revoked"} -> key revoked
<s:Fault><faultstring xml:lang="en">bad key</faultstring></s:Fault> -> bad key
{"type":"about:blank","title":"Maintenance","detail":"back at noon"} -> back at noon
{"title":"Bad","detail":"cut her -> cut her
{"message":"scope\/role: Mis -> scope/role: Mis
<html><title>HTTP Status 404</title><p><b>Type</b> Status Report</p> -> HTTP Status 404
<TITLE>Access Denied</TITLE><H1>Access Denied</H1>x<P>Reference 18 -> Access Denied
"#;

#[test]
fn the_words_of_each_server_are_found() {
    for (body, words) in SERVERS.lines().filter_map(|line| line.split_once(" -> ")) {
        assert_eq!(first(body).as_deref(), Some(words), "{body}");
    }
}

#[test]
fn incomplete_last_character_is_left_out() {
    assert_eq!(text(b"caf\xc3"), Some("caf"));
    assert_eq!(text(b"caf\xc3 "), None);
}

#[test]
fn body_without_text_gives_no_message() {
    for body in ["", " \n", "[1]", "{}", "{\"message\":7}"] {
        assert!(
            said(&HeaderMap::new(), body.as_bytes()).is_empty(),
            "{body:?}"
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bodies_do_not_panic(body in any::<String>()) {
        drop(said(&HeaderMap::new(), body.as_bytes()));
    }

    #[test]
    fn arbitrary_markup_does_not_panic(body in "[<>/pPtitlemsag é\"{:}]{0,80}") {
        drop(said(&HeaderMap::new(), body.as_bytes()));
    }
}
