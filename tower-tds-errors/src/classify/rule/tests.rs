use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::{Rule, Then};
use crate::classify::failure::Failure;
use crate::classify::{Answer, Kind};
use crate::retry::attempt::Attempt;

/// Whether `rule` holds for a 503 `Closed for Maintenance` with `X-Reason: planned, short`.
fn holds(rule: &Rule) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert("x-reason", HeaderValue::from_static("planned, short"));
    headers.append("x-reason", HeaderValue::from_static("really"));
    let answer = Answer::new(StatusCode::SERVICE_UNAVAILABLE, &headers);
    let failure = Failure {
        error: &answer.body(b"Closed for Maintenance").error().unwrap(),
        method: &Method::GET,
        uri: &Uri::from_static("https://api.example/v2?key=CANARY"),
        asked: &headers,
        attempt: Attempt::of(&http::Extensions::new()),
        headers: Some(&headers),
    };
    assert!(!format!("{failure:?}").contains("CANARY"));
    rule.judge(&failure).is_some()
}

const REASON: HeaderName = HeaderName::from_static("x-reason");

#[test]
fn a_rule_holds_where_all_its_conditions_do() {
    let busy = StatusCode::SERVICE_UNAVAILABLE;
    assert!(holds(&Rule::veto()), "no condition");
    for (rule, expected) in [
        (Rule::veto().status(busy), true),
        (Rule::veto().status(StatusCode::OK), false),
        (Rule::veto().header(REASON, "PLANNED"), true),
        (Rule::veto().header(REASON, "really"), true),
        (Rule::veto().header(REASON, ""), true),
        (Rule::veto().header(REASON, "unplanned"), false),
        (
            Rule::veto().header(HeaderName::from_static("x-other"), ""),
            false,
        ),
        (Rule::veto().message("closed for"), true),
        (Rule::veto().message("open"), false),
        (Rule::veto().when(|seen| seen.uri().path() == "/v2"), true),
        (Rule::veto().when(|seen| seen.attempt().number() > 1), false),
        (Rule::veto().status(busy).message("closed"), true),
        (Rule::veto().status(busy).message("open"), false),
        (Rule::veto().message("closed").when(|_| false), false),
    ] {
        assert_eq!(holds(&rule), expected, "{rule:?}");
    }
}

#[test]
fn a_rule_says_what_it_was_made_for() {
    assert!(matches!(
        Rule::means(Kind::Locked).then,
        Then::Means(Kind::Locked)
    ));
    assert!(matches!(Rule::veto().then, Then::Veto));
}
