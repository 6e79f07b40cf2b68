use proptest::prelude::*;

use super::*;

/// Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110.
const WALL: Duration = Duration::from_secs(784_111_777);

fn of(lines: &[(&'static str, &str)]) -> Option<Duration> {
    after(429, lines)
}

fn after(status: u16, lines: &[(&'static str, &str)]) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().expect("a header value"));
    }
    let status = StatusCode::from_u16(status).unwrap();
    retry_after(status, &headers, SystemTime::UNIX_EPOCH + WALL)
}

fn secs(n: u64) -> Option<Duration> {
    Some(Duration::from_secs(n))
}

#[test]
fn seconds_are_read_and_malformed_values_are_ignored() {
    for (value, wait) in [
        ("120", secs(120)),
        ("0", secs(0)),
        (" 7 ", secs(7)),
        ("1.5", secs(2)),
        ("2.0", secs(2)),
        ("60, 60", secs(60)),
        ("120, 60", secs(120)),
        ("7, soon", secs(7)),
        ("99999999999999999999999", Some(Duration::MAX)),
        ("+5", None),
        ("-5", None),
        ("", None),
        ("1.", None),
        (".5", None),
        ("soon", None),
        ("5s", None),
        ("1e3", None),
    ] {
        assert_eq!(of(&[("retry-after", value)]), wait, "{value:?}");
    }
    assert_eq!(of(&[]), None);
    let lines = ["1", "9", "junk", "3"].map(|value| ("retry-after", value));
    assert_eq!(of(&lines), secs(9));
}

#[test]
fn all_three_forms_of_a_date_count_from_the_date_of_the_response() {
    for value in [
        "Sun, 06 Nov 1994 08:50:37 GMT",
        "Sunday, 06-Nov-94 08:50:37 GMT",
        "Sun Nov  6 08:50:37 1994",
    ] {
        let asked = ("retry-after", value);
        assert_eq!(of(&[asked]), secs(60), "from the wall clock");
        for (date, wait) in [
            ("Sun, 06 Nov 1994 08:50:07 GMT", 30),
            ("Sun, 06 Nov 1994 09:49:37 GMT", 0),
            ("junk", 60),
        ] {
            assert_eq!(of(&[asked, ("date", date)]), secs(wait), "{date}");
        }
    }
}

#[test]
fn a_reset_is_read_if_no_call_is_left_and_there_is_no_retry_after() {
    for prefix in ["ratelimit", "x-ratelimit", "x-rate-limit"] {
        let name = |name: &str| -> &'static str { format!("{prefix}-{name}").leak() };
        let reset = (name("reset"), "60");
        assert_eq!(of(&[reset]), secs(60));
        assert_eq!(of(&[reset, (name("remaining"), "0")]), secs(60));
        assert_eq!(of(&[reset, (name("remaining"), "3")]), None);
        assert_eq!(of(&[reset, ("retry-after", "5")]), secs(5));
        assert_eq!(of(&[reset, ("retry-after", "soon")]), secs(60));
        // 23 s after the wall clock, and a number that may be a wait.
        assert_eq!(of(&[(name("reset"), "784111800")]), secs(784_111_800));
        let date = ("date", "Sat, 21 Nov 2026 09:00:00 GMT");
        for epoch in ["1795251612", "1795251612000"] {
            assert_eq!(of(&[(name("reset"), epoch), date]), secs(12), "{epoch}");
        }
        assert_eq!(of(&[(name("reset"), "-1")]), None);
    }
}

#[test]
fn the_status_decides_which_headers_are_a_hint() {
    let asked = [("retry-after", "5"), ("date", "soon")];
    for status in [400, 403, 404, 409, 413, 416, 420, 422, 429, 500, 503] {
        assert_eq!(after(status, &asked), secs(5), "{status}");
    }
    for status in [401, 407] {
        assert_eq!(after(status, &asked), None, "{status}");
    }
    let range = [("retry-after", "5"), ("content-range", "bytes */9")];
    assert_eq!(after(416, &range), None, "a wait does not move the range");
    // Kong sends the counters of a limit with every status.
    let used = [("ratelimit-remaining", "0"), ("ratelimit-reset", "9")];
    for status in [200, 400, 404, 416, 423, 500, 503] {
        assert_eq!(after(status, &used), None, "{status}");
    }
    assert_eq!((after(403, &used), after(429, &used)), (secs(9), secs(9)));
    assert_eq!(after(403, &used[1..]), None);
}

proptest! {
    #[test]
    fn any_headers_give_a_wait_or_none(value in "[ -~]{0,40}", date in "[ -~]{0,40}", reset in "[0-9.]{0,40}") {
        let lines = [("retry-after", &*value), ("date", &*date), ("ratelimit-reset", &*reset)];
        of(&lines);
    }

    #[test]
    fn any_run_of_digits_is_a_wait(value in "[0-9]{1,60}") {
        prop_assert!(of(&[("retry-after", &value)]).is_some());
    }
}
