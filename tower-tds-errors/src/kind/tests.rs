use std::collections::HashSet;

use super::Kind;
use crate::Stop;

#[test]
fn names_are_distinct_and_snake_case() {
    let names: HashSet<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for name in names {
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
    }
}

/// What stands in people's dashboards: names are added, and none is changed.
#[test]
fn names_stay_as_they_are_from_release_to_release() {
    let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(
        names,
        [
            "missing_credentials",
            "invalid_token",
            "missing_role",
            "identity_unavailable",
            "unauthorized",
            "token_unavailable",
            "token_refused",
            "throttled",
            "quota_exhausted",
            "rate_exceeded",
            "connection_limit",
            "limit_timeout",
            "unavailable",
            "server_timeout",
            "too_early",
            "range_not_satisfiable",
            "range_unclear",
            "locked",
            "misdirected",
            "captive_portal",
            "unexpected_content",
            "unexpected_redirect",
            "forbidden",
            "not_found",
            "rejected",
            "invalid_request",
            "connect",
            "dns",
            "proxy",
            "connect_timeout",
            "tls",
            "unsent",
            "stream_refused",
            "go_away",
            "timeout",
            "reset",
            "incomplete",
            "truncated",
            "body_reset",
            "stalled",
            "decode",
            "malformed",
            "unrecognized",
        ]
    );
    let stops: Vec<_> = Stop::ALL.iter().map(|stop| stop.as_str()).collect();
    assert_eq!(
        stops,
        [
            "fatal",
            "attempts",
            "deadline",
            "hint_too_long",
            "budget",
            "not_replayable",
            "not_idempotent",
            "not_ready",
            "vetoed",
        ]
    );
}

#[test]
fn phrases_are_lower_case_fragments() {
    for kind in Kind::ALL {
        let row = kind.row();
        for phrase in [row.what, row.next] {
            assert_eq!(phrase, phrase.to_lowercase());
            assert!(!phrase.ends_with('.'), "{phrase}");
        }
    }
}

#[test]
fn fatal_kinds_are_the_ones_that_no_second_try_cures() {
    let fatal: Vec<_> = Kind::ALL
        .iter()
        .filter(|kind| !kind.is_retryable())
        .collect();
    assert_eq!(
        fatal,
        [
            &Kind::MissingCredentials,
            &Kind::MissingRole,
            &Kind::TokenRefused,
            &Kind::RangeNotSatisfiable,
            &Kind::Locked,
            &Kind::CaptivePortal,
            &Kind::UnexpectedContent,
            &Kind::UnexpectedRedirect,
            &Kind::Forbidden,
            &Kind::NotFound,
            &Kind::Rejected,
            &Kind::InvalidRequest,
            &Kind::Proxy,
            &Kind::Tls,
            &Kind::Decode,
            &Kind::Malformed,
            &Kind::Unrecognized,
        ]
    );
}
