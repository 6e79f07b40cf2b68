use super::Kind;
use crate::GiveUp;

/// Dashboards use these names: names are added, and none is changed.
#[test]
fn kind_and_stop_names_are_stable() {
    let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(
        names.join(" "),
        "missing_credentials invalid_token missing_role token_unavailable token_refused throttled quota_exhausted \
         rate_exceeded connection_limit limit_timeout unavailable unexpected_response not_found rejected \
         invalid_request connect tls timeout reset truncated malformed too_large unrecognized"
    );
    for (stop, name) in [
        (GiveUp::Fatal, "fatal"),
        (GiveUp::Attempts, "attempts"),
        (GiveUp::Deadline, "deadline"),
        (GiveUp::HintTooLong, "hint_too_long"),
        (GiveUp::Budget, "budget"),
        (GiveUp::NotReplayable, "not_replayable"),
        (GiveUp::NotIdempotent, "not_idempotent"),
        (GiveUp::NotReady, "not_ready"),
        (GiveUp::Forbidden, "forbidden"),
    ] {
        assert_eq!(stop.to_string(), name);
    }
}

#[test]
fn phrases_are_fragments_and_begin_in_lower_case() {
    for kind in Kind::ALL {
        let row = kind.row();
        for phrase in [row.what, row.next] {
            // An acronym such as TLS may begin one.
            let first = phrase.split(' ').next().unwrap_or_default();
            let is_acronym = first == first.to_uppercase();
            assert!(first == first.to_lowercase() || is_acronym, "{phrase}");
            assert!(!phrase.ends_with('.'), "{phrase}");
        }
    }
}

#[test]
fn refused_token_exhausted_quota_and_tls_end_the_job() {
    let ends = Kind::ALL
        .iter()
        .filter(|kind| crate::Error::new(**kind, "no").ends_the_job());
    let ends: Vec<_> = ends.collect();
    assert_eq!(
        ends,
        [&Kind::TokenRefused, &Kind::QuotaExhausted, &Kind::Tls]
    );
}
