#![expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{Spent, spent};

/// 08:49:37 of a day, UTC.
const SENT: u64 = 784_111_777;

fn read(lines: &[(&str, &str)]) -> (Option<u64>, Option<u64>) {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let Spent { wait, window } = spent(&headers, || {
        SystemTime::UNIX_EPOCH + Duration::from_secs(SENT)
    });
    let secs = |time: Duration| time.as_secs();
    (wait.map(secs), window.map(secs))
}

#[test]
fn the_current_draft_names_its_policies() {
    let policy = (
        "ratelimit-policy",
        "\"burst\";q=9;w=60, \"day\";q=99;w=86400",
    );
    for (value, expected) in [
        ("\"burst\";r=0;t=30", (Some(30), Some(60))),
        ("\"day\";r=0;t=7000", (Some(7000), Some(86_400))),
        (
            "\"burst\";r=0;t=30, \"day\";r=5;t=7000",
            (Some(30), Some(60)),
        ),
        (
            "\"burst\";r=0;t=30,\"day\";r=0;t=7000",
            (Some(7000), Some(86_400)),
        ),
        ("\"a,b;c\";r=0;t=8", (Some(8), None)),
        ("\"burst\" ; r=0 ; t=30", (Some(30), Some(60))),
        ("burst;r=0;t=30", (Some(30), Some(60))),
        ("\"burst\";r=3;t=30", (None, None)),
        ("\"burst\";r=0;t=soon", (None, Some(60))),
        ("\"burst", (None, None)),
        ("", (None, None)),
    ] {
        assert_eq!(read(&[policy, ("ratelimit", value)]), expected, "{value}");
    }
}

#[test]
fn the_drafts_before_are_read() {
    for (lines, wait) in [
        (
            &[("ratelimit", "limit=9, remaining=0, reset=30")][..],
            Some(30),
        ),
        (&[("ratelimit", "limit=9, remaining=4, reset=30")], None),
        (
            &[("ratelimit-remaining", "0"), ("ratelimit-reset", "7")],
            Some(7),
        ),
        (
            &[("ratelimit-remaining", "1"), ("ratelimit-reset", "7")],
            None,
        ),
        (&[("ratelimit-reset", "7")], Some(7)),
        (&[("ratelimit-reset", "1.5")], Some(2)),
        (&[("ratelimit-reset", "-7")], None),
        (&[("x-ratelimit-reset", "7")], Some(7)),
        (
            &[("ratelimit-reset", "x"), ("x-ratelimit-reset", "7")],
            Some(7),
        ),
        (
            &[("ratelimit", "\"a\";r=0;t=3"), ("ratelimit-reset", "7")],
            Some(3),
        ),
    ] {
        assert_eq!(read(lines).0, wait, "{lines:?}");
    }
}

#[test]
fn a_reset_may_be_a_time() {
    let at = (SENT + 1_000_000_000 + 40).to_string();
    let seconds = read(&[("x-ratelimit-reset", &at)]).0;
    assert_eq!(seconds, Some(1_000_000_040));
    let first = read(&[("x-ratelimit-reset", "1000000000")]).0;
    assert_eq!(first, Some(1_000_000_000 - SENT));
    let millis = read(&[("x-ratelimit-reset", "1784111817000")]).0;
    assert_eq!(millis, Some(1_000_000_040));
}

#[test]
fn gateways_name_the_window_in_the_header() {
    for (name, wait, window) in [
        ("x-ratelimit-remaining-second", 1, 1),
        ("x-ratelimit-remaining-minute", 23, 60),
        ("x-ratelimit-remaining-hour", 10 * 60 + 23, 3600),
        ("x-ratelimit-remaining-day", 54_623, 86_400),
        ("x-ratelimit-remaining-month", 54_623, 28 * 86_400),
        ("x-ratelimit-remaining-year", 54_623, 365 * 86_400),
        ("x-ratelimit-remaining-history-day", 54_623, 86_400),
    ] {
        // No month ends before its day does.
        assert_eq!(read(&[(name, "0")]), (Some(wait), Some(window)), "{name}");
        assert_eq!(read(&[(name, "1")]), (None, None), "{name}");
    }
    assert_eq!(read(&[("x-ratelimit-remaining-tokens", "0")]), (None, None));
    let both = [
        ("x-ratelimit-remaining-minute", "0"),
        ("x-ratelimit-remaining-day", "0"),
    ];
    assert_eq!(read(&both), (Some(54_623), Some(86_400)));
}

proptest! {
    #[test]
    fn no_value_panics(a in "[ -~]{0,60}", b in "[ -~]{0,60}", c in "[0-9.]{0,30}") {
        read(&[("ratelimit", &a), ("ratelimit-policy", &b), ("x-ratelimit-reset", &c)]);
    }
}
