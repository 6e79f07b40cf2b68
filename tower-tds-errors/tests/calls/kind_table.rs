//! The table on the crate's front page, row by row: the code does what each row promises.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_tds_errors::{Error, Kind, RetryLayer, Sent, classify};

/// The cells of one line: answer, kinds, retried.
struct Row {
    answer: &'static str,
    kinds: Vec<Kind>,
    retried: &'static str,
}

fn rows() -> Vec<Row> {
    let page = include_str!("../../README.md").lines();
    let lines = page.skip_while(|line| !line.starts_with("| answer | kind |"));
    let lines = lines.skip(2).take_while(|line| line.starts_with("| "));
    lines.map(row).collect()
}

fn row(line: &'static str) -> Row {
    let cells = line.trim_matches('|');
    let cells: Vec<_> = cells.split(" | ").map(str::trim).collect();
    let [answer, kind, retried] = cells[..] else {
        unreachable!("three cells in {line}")
    };
    let named = |each: &&Kind| format!("`{each:?}`") == kind;
    Row {
        answer,
        kinds: vec![*Kind::ALL.iter().find(named).expect("a kind")],
        retried,
    }
}

#[test]
fn every_kind_has_one_row() {
    let kinds: Vec<_> = rows().into_iter().flat_map(|row| row.kinds).collect();
    let distinct: HashSet<_> = kinds.iter().copied().collect();
    assert_eq!(kinds.len(), distinct.len(), "none twice");
    assert_eq!(distinct, Kind::ALL.iter().copied().collect());
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let lines = lines.iter().map(|(name, value)| {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        (name, value)
    });
    lines.collect()
}

/// The headers of request and response that a row names in addition to status and text.
fn besides(answer: &str) -> (HeaderMap, HeaderMap) {
    let (asked, said): (&[_], &[_]) = match answer {
        "429 for longer than a minute" => (&[], &[("x-ratelimit-remaining-hour", "0")]),
        _ if answer.contains("416 with `") => (&[], &[("content-range", "bytes */1000")]),
        _ if answer.contains("413 with a hint") => (&[], &[("retry-after", "1")]),
        "101, 302, other 3xx except Not Modified, 511, 200 `text/html` for JSON" => (
            &[("accept", "application/json")],
            &[("content-type", "text/html")],
        ),
        _ => (&[], &[]),
    };
    (headers(asked), headers(said))
}

#[test]
fn each_response_in_the_table_gives_its_kind() {
    let mut tried = 0_u32;
    for Row { answer, kinds, .. } in rows() {
        let statuses = answer.split(|c: char| !c.is_ascii_digit());
        let statuses = statuses.filter_map(|word| match word.len() {
            3 => word.parse::<StatusCode>().ok(),
            _ => None,
        });
        let (asked, said) = besides(answer);
        for status in statuses {
            // In the rows of a 401 the quoted words are message texts, which a 403 may also have.
            let refused = status == 401 || (status == 403 && answer.starts_with("401"));
            let texts: Vec<_> = match refused {
                true => answer.split('`').skip(1).step_by(2).collect(),
                false => vec![],
            };
            let none = texts.is_empty().then_some("");
            for text in texts.iter().copied().chain(none) {
                let error = classify(&asked, status, &said, text).unwrap_err();
                assert_eq!(error.kind(), kinds[0], "{answer}: {status} {text}");
                tried = tried.saturating_add(1);
            }
        }
    }
    assert!(tried > 25, "{tried}");
}

/// How often a request is sent that always fails with `kind`, and the average wait between.
async fn sent(kind: Kind, method: Method) -> (u32, Duration) {
    let (sent, start) = (Arc::new(AtomicU32::new(0)), Instant::now());
    let count = Arc::clone(&sent);
    let fails = tower::service_fn(move |_: Request<String>| {
        count.fetch_add(1, SeqCst);
        std::future::ready(Err::<Response<()>, _>(Error::new(kind, "no")))
    });
    let request = Request::builder().method(method).body(String::new());
    let service = RetryLayer::new().layer(fails);
    service
        .oneshot(request.expect("a request"))
        .await
        .expect_err("it fails");
    let waits = sent.load(SeqCst).saturating_sub(1);
    let wait = start.elapsed().checked_div(waits);
    (sent.load(SeqCst), wait.unwrap_or_default())
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn each_kind_is_retried_as_documented() {
    for Row { kinds, retried, .. } in rows() {
        for kind in kinds {
            let (times, wait) = sent(kind, Method::PUT).await;
            let says = |words: &str| retried.contains(words);
            let expected = if says("once, ") { 2 } else { 3 };
            match retried {
                "no" => assert_eq!(times, 1, "{kind}"),
                _ if says("by the caller") => {
                    assert!(Error::new(kind, "so").is_retryable(), "{kind}")
                }
                _ => assert_eq!(times, expected, "{kind}"),
            }
            if says("without a wait") && expected == 2 {
                assert_eq!(wait, Duration::ZERO, "{kind}");
            } else if says("second") {
                assert!(wait >= SECOND, "{kind}");
            } else if says("backoff") {
                assert!(wait > Duration::ZERO && wait < SECOND, "{kind}");
            }
            // For a refused token or a 421, "any method" does not apply: the service responded.
            let any = says("any method") && Error::new(kind, "so").sent() != Sent::Answered;
            let (unsafe_times, _) = sent(kind, Method::POST).await;
            assert_eq!(unsafe_times, if any { times } else { 1 }, "{kind}");
        }
    }
}
