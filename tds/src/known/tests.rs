use super::*;

const TAG: (&str, &str) = ("etag", "\"v1\"");
const NEWER: (&str, &str) = ("etag", "\"v2\"");

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let lines = lines.iter().map(|(name, value)| {
        let name = HeaderName::from_static(name);
        (name, HeaderValue::from_static(value))
    });
    lines.collect()
}

/// Requests once a minute. Returns the minutes in which there was no condition, and the minute in
/// which the 304s were proven wrong.
fn hours(
    data: impl Fn(u64) -> (&'static str, &'static str),
    is_wrong: bool,
) -> (Vec<u64>, Option<u64>) {
    let begun = Instant::now();
    let (mut known, mut had) = (Known::default(), None);
    let (mut whole, mut proof) = (Vec::new(), None);
    for minute in 0..200 {
        let now = begun + Duration::from_secs(60 * minute);
        let tag = data(minute);
        let condition = known.condition(now).map(|(_, value)| value.clone());
        let proven = match &condition {
            Some(value) if is_wrong || value == tag.1 => known.same(now),
            condition => {
                let is_same = had == Some(tag);
                had = Some(tag);
                known.whole(&headers(&[tag]), condition.is_some(), is_same)
            }
        };
        whole.extend(condition.is_none().then_some(minute));
        proof = proof.or(proven.then_some(minute));
    }
    (whole, proof)
}

#[test]
fn resource_with_304s_alone_is_fetched_in_full_after_10_20_and_40_minutes_and_so_on() {
    assert_eq!(hours(|_| TAG, false), (vec![0, 11, 21, 41, 81, 161], None));
}

#[test]
fn data_that_changes_in_the_round_of_a_full_request_proves_nothing() {
    let (whole, proof) = hours(|minute| if minute < 11 { TAG } else { NEWER }, false);
    // The row begins anew when the service shows the change.
    assert_eq!((&whole[..3], proof), (&[0, 11, 23][..], None));
}

#[test]
fn service_that_answers_304_to_everything_gets_no_conditions_once_that_is_proven() {
    let (whole, proof) = hours(|minute| if minute < 5 { TAG } else { NEWER }, true);
    assert_eq!(proof, Some(12), "the old tag is out of date");
    assert_eq!(whole[..4], [0, 11, 13, 14]);
}

#[test]
fn other_bytes_under_the_same_tag_prove_the_304s_wrong_at_once() {
    let (begun, mut known) = (Instant::now(), Known::default());
    assert!(!known.whole(&headers(&[TAG]), false, false));
    assert!(!known.same(begun));
    let late = begun + PATIENCE;
    assert!(known.condition(late).is_none());
    assert!(known.whole(&headers(&[TAG]), false, false));
    assert!(known.condition(late).is_none());
    assert!(!known.whole(&headers(&[TAG]), false, false), "one line");
    assert!(known.condition(late).is_none());
}

#[test]
fn a_date_is_a_condition_byte_for_byte_if_its_second_was_over() {
    let modified = "Sat, 28 Nov 2026 10:00:00 GMT";
    for (lines, sent) in [
        (
            vec![("date", "Sat, 28 Nov 2026 10:00:01 GMT")],
            Some(modified),
        ),
        (vec![("date", "Sat, 28 Nov 2026 10:00:00 GMT")], None),
        (vec![("date", "Sat, 28 Nov 2026 09:59:59 GMT")], None),
        (vec![], None),
        (vec![("date", "now")], None),
        (vec![("etag", "W/\"v1\"")], Some("W/\"v1\"")),
    ] {
        let mut known = Known::default();
        let lines = [&lines[..], &[("last-modified", modified)]].concat();
        known.whole(&headers(&lines), false, false);
        let condition = known.condition(Instant::now()).map(|(_, value)| value);
        assert_eq!(
            condition.map(|value| value.to_str().expect("text")),
            sent,
            "{lines:?}"
        );
    }
    // An obsolete form stays as it is.
    let old = [
        ("last-modified", "Saturday, 28-Nov-26 10:00:00 GMT"),
        ("date", "Sat, 28 Nov 2026 11:00:00 GMT"),
    ];
    let mut known = Known::default();
    known.whole(&headers(&old), false, false);
    let condition = known.condition(Instant::now()).expect("a date");
    assert_eq!(
        condition,
        (&IF_MODIFIED_SINCE, &HeaderValue::from_static(old[0].1))
    );
}
