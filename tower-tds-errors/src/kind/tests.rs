use std::collections::HashSet;

use super::Kind;

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
