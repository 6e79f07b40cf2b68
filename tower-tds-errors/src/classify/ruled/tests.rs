use std::sync::Arc;

use http::{Method, Request};
use proptest::prelude::*;

use super::Ruled;
use crate::{Error, Kind, Rule, Stop};

/// A rule by number: the odd ones do not hold, and each third is a veto.
fn rule(number: usize) -> Rule {
    let rule = if number.is_multiple_of(3) {
        Rule::veto()
    } else {
        let kinds = Kind::ALL.iter().cycle();
        Rule::means(kinds.copied().nth(number).unwrap_or(Kind::Locked))
    };
    rule.when(move |_| number.is_multiple_of(2))
}

fn judged(rules: &[usize]) -> Error {
    let rules = Arc::new(rules.iter().copied().map(rule).collect());
    let mut error = Error::new(Kind::Unavailable, "busy");
    let request = Request::new(());
    Ruled::new(&rules, &request).judge(&mut error, &Method::GET, None);
    error
}

proptest! {
    #[test]
    fn one_veto_that_holds_stands_whatever_comes_before_and_after(
        before in prop::collection::vec(0_usize..100, 0..8),
        after in prop::collection::vec(0_usize..100, 0..8),
    ) {
        let error = judged(&[before.as_slice(), &[6], &after].concat());
        prop_assert!(!error.is_retryable());
        prop_assert_eq!(error.stopped_because(), Some(Stop::Vetoed));
    }

    #[test]
    fn the_last_rule_that_holds_decides_the_kind(
        rules in prop::collection::vec(0_usize..100, 0..8),
    ) {
        let holds = |number: &&usize| number.is_multiple_of(2) && !number.is_multiple_of(3);
        let last = rules.iter().rev().find(holds);
        let expected = last.map_or(Kind::Unavailable, |last| {
            *Kind::ALL.iter().cycle().nth(*last).unwrap()
        });
        prop_assert_eq!(judged(&rules).kind(), expected);
    }
}

#[test]
fn an_error_that_has_stopped_a_layer_below_is_settled() {
    let mut error = Error::new(Kind::Unavailable, "busy");
    error.facts_mut().stop = Some(Stop::Attempts);
    let rules = Arc::new(vec![Rule::means(Kind::Locked), Rule::veto()]);
    Ruled::new(&rules, &Request::new(())).judge(&mut error, &Method::GET, None);
    assert_eq!(
        (error.kind(), error.stopped_because()),
        (Kind::Unavailable, Some(Stop::Attempts))
    );
}
