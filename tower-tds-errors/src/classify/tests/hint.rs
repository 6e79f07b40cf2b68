use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;

use crate::{Kind, classify};

/// Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110.
const WALL: Duration = Duration::from_secs(784_111_777);

fn hint(values: &[&str], date: Option<&str>) -> Option<Duration> {
    let values = values.iter().map(|value| ("retry-after", *value));
    let lines: Vec<_> = values.chain(date.map(|date| ("date", date))).collect();
    of(429, &lines)
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let lines = lines.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, value);
    }
    headers
}

fn of(status: u16, lines: &[(&str, &str)]) -> Option<Duration> {
    let status = StatusCode::from_u16(status).unwrap();
    super::super::hint(status, &headers(lines), || SystemTime::UNIX_EPOCH + WALL)
}

/// Whether a response is a used-up quota.
fn is_used(status: u16, lines: &[(&str, &str)]) -> bool {
    let status = StatusCode::from_u16(status).unwrap();
    let error = classify(&HeaderMap::new(), status, &headers(lines), "").unwrap_err();
    error.kind() == Kind::QuotaExhausted
}

#[test]
fn retry_after_reads_seconds_and_ignores_malformed_values() {
    let secs = |n| Some(Duration::from_secs(n));
    for (value, wait) in [
        ("120", secs(120)),
        ("0", secs(0)),
        (" 7 ", secs(7)),
        ("1.5", secs(2)),
        ("2.0", secs(2)),
        ("120, 60", secs(120)),
        ("99999999999999999999999", Some(Duration::MAX)),
        ("+5", None),
        ("-5", None),
        ("", None),
        ("1.", None),
        (".5", None),
        ("soon", None),
        ("5s", None),
    ] {
        assert_eq!(hint(&[value], None), wait, "{value:?}");
    }
    assert_eq!(hint(&[], None), None);
    assert_eq!(hint(&["1", "9", "junk", "3"], None), secs(9));
}

#[test]
fn a_date_counts_from_the_date_of_the_response() {
    let later = "Sun, 06 Nov 1994 08:50:37 GMT";
    let minute = Some(Duration::from_secs(60));
    assert_eq!(hint(&[later], None), minute, "from the wall clock");
    for (date, wait) in [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 60),
        ("Sun, 06 Nov 1994 08:50:07 GMT", 30),
        ("Sun, 06 Nov 1994 09:49:37 GMT", 0),
    ] {
        let wait = Some(Duration::from_secs(wait));
        assert_eq!(hint(&[later], Some(date)), wait, "{date}");
    }
    assert_eq!(hint(&[later], Some("junk")), minute);
}

#[test]
fn all_three_forms_of_a_date_are_read() {
    for value in [
        "Sun, 06 Nov 1994 08:50:37 GMT",
        "Sunday, 06-Nov-94 08:50:37 GMT",
        "Sun Nov  6 08:50:37 1994",
    ] {
        assert_eq!(hint(&[value], None), Some(Duration::from_secs(60)));
    }
}

#[test]
fn retry_after_precedes_the_ratelimit_headers() {
    let day = [
        ("x-ratelimit-remaining-day", "0"),
        ("ratelimit-reset", "9"),
        ("retry-after", "5"),
    ];
    assert_eq!(of(429, &day), Some(Duration::from_secs(5)));
    assert_eq!(of(429, &day[..2]), Some(Duration::from_secs(9)));
    assert!(is_used(429, &day), "the window is named");
}

#[test]
fn ratelimit_reset_is_read_only_for_a_429() {
    for status in [401, 416, 423, 500, 503] {
        assert_eq!(of(status, &[("ratelimit-reset", "9")]), None);
        let asked = [("retry-after", "86400")];
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(of(status, &asked), day, "{status}");
        assert!(!is_used(status, &asked), "{status}");
    }
}

#[test]
fn wait_above_one_minute_means_an_exhausted_quota() {
    for (wait, used) in [("60", false), ("61", true), ("86400", true)] {
        assert_eq!(is_used(429, &[("retry-after", wait)]), used, "{wait}");
    }
}

proptest! {
    #[test]
    fn arbitrary_hints_do_not_panic(value in "[ -~]{0,40}", date in "[ -~]{0,40}") {
        hint(&[&value], Some(&date));
    }

    #[test]
    fn any_run_of_digits_is_a_hint(value in "[0-9]{1,60}") {
        prop_assert!(hint(&[&value], None).is_some());
    }
}
