//! The table on the crate's front page, row by row: what it says is what happens.
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_tds_errors::{Answer, Error, Kind, RetryLayer};

/// The cells of one line: answer, kinds, retried, next move.
struct Row {
    answer: &'static str,
    kinds: Vec<Kind>,
    retried: &'static str,
    next: &'static str,
}

fn rows() -> Vec<Row> {
    let page = include_str!("../src/lib.rs").lines();
    let lines = page.skip_while(|line| !line.starts_with("//! | answer | kind |"));
    let lines = lines.skip(2).take_while(|line| line.starts_with("//! | "));
    lines.map(row).collect()
}

fn row(line: &'static str) -> Row {
    let cells = line.trim_start_matches("//! |").trim_end_matches('|');
    let cells: Vec<_> = cells.split(" | ").map(str::trim).collect();
    let [answer, kinds, retried, next] = cells[..] else {
        unreachable!("four cells in {line}")
    };
    let names = kinds.split("(Kind::").skip(1);
    let names = names.map(|rest| rest.split(')').next().expect("a link ends"));
    let named = |name: &str| {
        let named = |kind: &&Kind| format!("{kind:?}") == name;
        *Kind::ALL.iter().find(named).expect("a kind")
    };
    Row {
        answer,
        kinds: names.map(named).collect(),
        retried,
        next,
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

/// What is asked and answered besides status and text, where a row says so.
fn besides(answer: &str) -> (HeaderMap, HeaderMap, &'static str) {
    let range = [("range", "bytes=9-")];
    let (asked, said, body): (&[_], &[_], _) = match answer {
        "429 that names an hour, a day or longer" => {
            (&[], &[("x-ratelimit-remaining-hour", "0")], "")
        }
        "416 with `Range` asked, and `Content-Range`" => {
            (&range, &[("content-range", "bytes */4")], "")
        }
        "416 with `Range` asked, but no `Content-Range`" => (&range, &[], ""),
        "423 in the words of RFC 4918, or a `Lock-Token` asked" => {
            (&[], &[], "<error><lock-token-submitted/></error>")
        }
        "200 `text/html` where only JSON or XML is accepted" => (
            &[("accept", "application/json")],
            &[("content-type", "text/html")],
            "",
        ),
        _ => (&[], &[], ""),
    };
    (headers(asked), headers(said), body)
}

#[test]
fn each_answer_means_its_kind() {
    let mut tried = 0_u32;
    for Row { answer, kinds, .. } in rows() {
        let statuses = answer.split(|c: char| !c.is_ascii_digit());
        let statuses = statuses.filter_map(|word| match word.len() {
            3 => word.parse::<StatusCode>().ok(),
            _ => None,
        });
        let (asked, said, body) = besides(answer);
        // What is quoted of a 401 is its text; of others, the name of a header.
        let texts: Vec<_> = match answer.starts_with("401") {
            true => answer.split('`').skip(1).step_by(2).collect(),
            false => vec![],
        };
        for status in statuses {
            for text in texts
                .iter()
                .copied()
                .chain(texts.is_empty().then_some(body))
            {
                let answered = Answer::new(status, &said)
                    .body(text.as_bytes())
                    .asked(&asked);
                assert_eq!(answered.kind(), Some(kinds[0]), "{answer}: {status} {text}");
                tried = tried.saturating_add(1);
            }
        }
    }
    assert!(tried > 40, "{tried}");
}

/// How often a request that always fails so is sent, and the shortest wait between.
async fn sent(kind: Kind, method: Method) -> (u32, Duration) {
    let (sent, start) = (AtomicU32::new(0), Instant::now());
    let fails = tower::service_fn(|_: Request<()>| {
        sent.fetch_add(1, SeqCst);
        std::future::ready(Err::<Response<()>, _>(Error::new(kind, "no")))
    });
    let request = Request::builder().method(method).body(());
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
async fn each_kind_is_retried_so() {
    for Row { kinds, retried, .. } in rows() {
        for kind in kinds {
            // PUT, which no idle connection is met for.
            let (times, wait) = sent(kind, Method::PUT).await;
            let says = |words: &str| retried.contains(words);
            let expected = if says("once, ") { 2 } else { 3 };
            match retried {
                "no" => assert_eq!(times, 1, "{kind}"),
                _ if says("by its caller") => assert!(kind.is_retryable(), "{kind}"),
                _ => assert_eq!(times, expected, "{kind}"),
            }
            if says("at once") && expected == 2 {
                assert_eq!(wait, Duration::ZERO, "{kind}");
            } else if says("second") {
                assert!(wait >= SECOND, "{kind}");
            } else if says("backoff") {
                assert!(wait > Duration::ZERO && wait < SECOND, "{kind}");
            }
            let (unsafe_times, _) = sent(kind, Method::POST).await;
            assert_eq!(
                unsafe_times,
                if says("any method") { times } else { 1 },
                "{kind}"
            );
        }
    }
}

#[test]
fn each_text_tells_the_same_next_move() {
    for Row { kinds, next, .. } in rows() {
        for kind in kinds {
            let text = Error::new(kind, "no").to_string();
            let (_, told) = text.split_once("; ").expect("a next move");
            assert!(
                told.contains(next),
                "{kind}: {told:?}, and on the page {next:?}"
            );
        }
    }
}
