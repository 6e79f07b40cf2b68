use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Rule, Rules, Then};
use crate::classify::{Answer, Kind};
use crate::{GiveUp, Sent};

/// Whether `rule` holds for a 503 `Closed for Maintenance` with `X-Reason: planned, short`.
fn holds(rule: &Rule) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert("x-reason", HeaderValue::from_static("planned, short"));
    headers.append("x-reason", HeaderValue::from_static("really"));
    let answer = Answer::new(StatusCode::SERVICE_UNAVAILABLE, &headers);
    let error = answer.body(b"Closed for Maintenance").error().unwrap();
    rule.holds(&error, Some(&headers))
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
        (Rule::veto().status(busy).message("closed"), true),
        (Rule::veto().status(busy).message("open"), false),
    ] {
        assert_eq!(holds(&rule), expected, "{rule:?}");
    }
}

#[test]
fn a_rule_says_what_it_was_made_for() {
    assert!(matches!(
        Rule::means(Kind::Rejected).then,
        Then::Means(Kind::Rejected)
    ));
    assert!(matches!(Rule::veto().then, Then::Veto));
}

#[test]
fn one_veto_that_holds_stands_whatever_comes_before_and_after() {
    let headers = HeaderMap::new();
    for at in 0..3 {
        let mut list = vec![Rule::means(Kind::Unavailable); 2];
        list.insert(at, Rule::veto());
        let rules = Rules { list, hook: None };
        let mut error = Answer::new(StatusCode::CONFLICT, &headers).error().unwrap();
        rules.judge(&mut error, Some(&headers));
        assert_eq!(error.kind(), Kind::Unavailable);
        assert_eq!(error.gave_up(), Some(GiveUp::Forbidden));
    }
}

#[test]
fn the_hook_comes_last_and_sees_the_headers() {
    let hook = |error: &mut crate::Error, headers: Option<&HeaderMap>| {
        assert_eq!((error.kind(), headers.is_some()), (Kind::Unavailable, true));
        error.set_kind(Kind::LimitTimeout);
    };
    let rules = Rules {
        list: vec![Rule::means(Kind::Unavailable)],
        hook: Some(std::sync::Arc::new(hook)),
    };
    let headers = HeaderMap::new();
    let mut error = Answer::new(StatusCode::CONFLICT, &headers).error().unwrap();
    rules.judge(&mut error, Some(&headers));
    // And does not make it unsent.
    assert_eq!(
        (error.kind(), error.sent()),
        (Kind::LimitTimeout, Sent::Answered)
    );
}
