//! `tds bulk`: whole files or none, and a second run for the rest.

mod again;
mod disk;
mod ending;
mod long;
mod outage;
mod page;
mod verify;

use std::{fs, process::Output};

use serde_json::Value;
use tds_sim::ErrorBody;

use crate::{
    Bench,
    answers::{gzip, range},
    at_once, end, ended, err, events, live, out, output, piped, says, signal,
    upstream::{answer, sized},
};

impl Bench {
    /// The sums of a run, which have to be those of the list.
    fn report(&self, run: &Output) -> Value {
        let mut report = events(&out(run)).pop().expect("the sums");
        let again = fs::read_to_string(self.path("rerun")).expect("a list");
        report["again"] = again.lines().map(Value::from).collect();
        let count = |name: &str| report[name].as_u64().expect("a number");
        let failed = report["failed"].as_object().expect("by kind");
        let failed: u64 = failed.values().filter_map(Value::as_u64).sum();
        let missing = failed + count("unfinished");
        let sum = count("ok") + count("skipped") + missing;
        assert_eq!(sum, count("total"), "{report}");
        assert_eq!(again.lines().count() as u64, missing, "{report}");
        report
    }
}

fn lives(count: u32) -> String {
    format!("/v1/live/bus-{{0..{}}}\n", count - 1)
}

#[tokio::test]
async fn files_are_byte_equal_and_targets_are_sent_unchanged() {
    let bench = Bench::new().await;
    let odd = "/v1/live/odd?$filter=line%20eq%20'307'&%24top=5";
    let list = format!(
        "# days\n{}\r\n{odd}\n/v1/live/公車\tbus/公車.json\n/v1/live/%E5%85%AC\n\n",
        lives(60)
    );
    let run = output(bench.bulk(&list, "")).await;
    ended(&run, 0);
    for n in 0..60 {
        let name = format!("bus-{n}");
        assert_eq!(
            bench.file(&format!("v1_live_{name}")),
            live(&name).as_bytes()
        );
    }
    let odd_name = "v1_live_odd_$filter=line%20eq%20_307__%24top=5";
    assert_eq!(bench.file(odd_name), live("odd").as_bytes());
    let bus = String::from_utf8(bench.file("bus/公車.json")).expect("text");
    assert!(bus.contains("%E5%85%AC%E8%BB%8A"), "{bus}");
    assert!(!bench.files().iter().any(|name| name.contains(".part")));

    assert_eq!(bench.asked(), (1, 63));
    assert_eq!(bench.summary().by_status, [(200, 63)].into());
    let arrivals = bench.server.ledger().arrivals();
    for target in [odd, "/v1/live/%E5%85%AC%E8%BB%8A", "/v1/live/%E5%85%AC"] {
        assert!(arrivals.iter().any(|it| &*it.target == target), "{target}");
    }
    assert_eq!(bench.report(&run)["ok"], 63);

    // A second run has nothing to do. After a file is removed or changed, a run downloads that file.
    let run = output(bench.bulk(&list, "")).await;
    assert_eq!(bench.report(&run)["skipped"], 63);
    fs::remove_file(bench.path("files/v1_live_bus-7")).expect("it is there");
    bench.write("files/v1_live_bus-8", "short");
    ended(&output(bench.bulk(&list, "")).await, 0);
    assert_eq!(bench.asked(), (1, 65));
    assert_eq!(bench.file("v1_live_bus-8"), live("bus-8").as_bytes());
}

#[tokio::test]
async fn range_makes_one_file_for_each_value() {
    let bench = Bench::new().await;
    let list = "/v1/live/bus-{08..11}\n/v1/live/{2024-02-27..2024-03-01}?n={1..2}\t{}/{}.json\n";
    let run = output(bench.bulk(list, "")).await;
    ended(&run, 0);
    let told = events(&out(&run));
    assert_eq!((told.len(), &told[12]["ok"]), (4 + 8 + 1, &12.into()));
    let leap = told
        .iter()
        .find(|event| event["file"] == "2024-02-29/2.json");
    let leap = leap.expect("a leap day");
    assert_eq!(leap["url"], "/v1/live/2024-02-29?n=2");
    assert_eq!(
        (&leap["result"], &leap["bytes"]),
        (&"ok".into(), &128.into())
    );
    assert_eq!(bench.file("v1_live_bus-08"), live("bus-08").as_bytes());
    let manifest = String::from_utf8(bench.file(".tds-manifest.jsonl")).expect("text");
    let entry = events(&manifest).pop().expect("a line");
    for field in ["file", "url", "base_url", "etag", "length", "time"] {
        assert!(!entry[field].is_null(), "{field}: {entry}");
    }
    assert_eq!(bench.summary().by_status, [(200, 12)].into());
    let impossible = "that exist, the earliest first";
    for (list, told) in [
        ("/v1/{2..1}\n", "is not a range of"),
        ("/v1/{10..9}\n", "is not a range of"),
        ("/v1/h/{1..3\n", "is not closed"),
        ("/v1/{1..3}/{a,b\n", "is not closed"),
        ("/v1/{a..b}\n", "is not a range of"),
        ("/v1/{2023-02-29..2023-03-01}\n", impossible),
        ("/v1/{2023-02-01..2023-02-31}\n", impossible),
        ("/v1/{1..2000}/{1..2000}\n", "more than 1000000 files"),
        ("/v1/{1..2}\tx\n", "has the same file name, x:"),
        ("/v1/{a,b}\tx\n", "has the same file name, x:"),
        ("/v1/{1..2}-{a,b}\t{}\n", "has the same file name, 1:"),
        ("/v1/{1..2}\t{}-{}\n", "no range of the path fills"),
        ("/v1/live\t{}\n", "no range of the path fills"),
        ("/v1/{2024-13..2025-01}\n", impossible),
        ("/v1/{2025-02..2025-01}\n", impossible),
        ("/v1/{2025-02..2025-03-01}\n", "is not a range"),
    ] {
        let run = output(bench.bulk(list, "")).await;
        ended(&run, 2);
        says(&run, told);
    }
    // Months and words are ranges as well. Braces that are neither are sent.
    let list = "/v1/live/{2024-11..2025-02}\n/v1/live/{bus,metro}-{1..2}\t{}/{}\n/v1/live/{x}?q={a:1,b:2}\tz\n";
    let run = output(bench.bulk(list, "")).await;
    ended(&run, 0);
    assert_eq!(bench.report(&run)["total"], 9);
    for (file, name) in [
        ("v1_live_2024-12", "2024-12"),
        ("v1_live_2025-01", "2025-01"),
        ("bus/2", "bus-2"),
        ("metro/1", "metro-1"),
    ] {
        assert_eq!(bench.file(file), live(name).as_bytes());
    }
    let sent = bench.server.ledger().arrivals();
    let odd = "/v1/live/{x}?q={a:1,b:2}";
    assert!(sent.iter().any(|call| &*call.target == odd));
}

#[tokio::test]
async fn interrupt_leaves_complete_files_and_a_correct_report() {
    let bench = Bench::new().await;
    let run = piped(bench.bulk(&lives(400), ""));
    bench.seen(|seen| seen.complete >= 60).await;
    signal(&run, "-INT");
    let run = end(run).await;
    ended(&run, 1);
    says(&run, "run the same command again");
    let report = bench.report(&run);
    assert_eq!(report["ended_by"], "interrupted");
    let mut files = bench.files();
    files.retain(|name| !name.contains(".part"));
    // The file of each worker may have got its name at the end of the run.
    let (told, whole) = (report["ok"].as_u64().expect("a number"), files.len() as u64);
    assert!((told..=told + 40).contains(&whole), "{told} and {whole}");
    assert!(whole < 400);
}

#[tokio::test]
async fn revoked_tokens_lose_no_file() {
    at_once([ErrorBody::Text, ErrorBody::Json], |body| async move {
        let bench = Bench::with(|config| config.error_body = body).await;
        let run = piped(bench.bulk(&lives(120), ""));
        bench.seen(|seen| seen.complete >= 50).await;
        bench.server.sim().revoke_all();
        ended(&end(run).await, 0);
        assert_eq!(bench.files().len(), 120);
        let seen = bench.summary();
        assert_eq!(seen.token_posts, 2, "{seen:?}");
        assert_eq!(seen.by_status.get(&200), Some(&120));
    })
    .await;
}

#[tokio::test]
async fn expiring_tokens_are_renewed_in_time() {
    let bench = Bench::with(|config| config.expires_in = 4).await;
    ended(&output(bench.bulk(&lives(250), "")).await, 0);
    assert_eq!(bench.files().len(), 250);
    let seen = bench.summary();
    assert_eq!(seen.by_status, [(200, 250)].into(), "none was refused");
    assert!(seen.token_posts >= 2, "{seen:?}");
}

// The service answers with a 200 of the whole, with a refusal of the range, or with a range that was not
// requested.
#[tokio::test]
async fn part_of_another_file_is_not_resumed() {
    let cases = [
        ("\"v1\"", "200 OK", "etag: \"v2\"\r\n"),
        (
            "\"v1\"",
            "416 Range Not Satisfiable",
            "content-range: bytes */3\r\n",
        ),
        ("W/\"v1\"", "200 OK", "etag: W/\"v1\"\r\n"),
        (
            "\"v1\"",
            "206 Partial Content",
            "etag: \"v1\"\r\ncontent-range: bytes 5-7/9\r\n",
        ),
        (
            "\"v1\"",
            "206 Partial Content",
            "etag: \"v2\"\r\ncontent-range: bytes 5-7/8\r\n",
        ),
    ];
    at_once(cases, |(tag, status, headers)| async move {
        let bench = Bench::of(move |head, nth| {
            let cut = format!("etag: {tag}\r\ncontent-length: 9\r\n");
            match nth {
                0 => answer("200 OK", &cut, b"12345"),
                _ if range(head).is_none() => sized("200 OK", "", b"abc"),
                _ => sized(status, headers, b"abc"),
            }
        })
        .await;
        ended(&output(bench.bulk("/x\n", "")).await, 0);
        assert_eq!(bench.file("x"), b"abc", "{status}");
        assert_eq!(bench.files(), ["x"], "{status}");
        // A weak tag is of no bytes.
        let has_range = bench.heads().iter().any(|head| range(head).is_some());
        assert_eq!(has_range, !tag.starts_with('W'), "{status}");
    })
    .await;
}

#[tokio::test]
async fn file_arrives_after_416_responses() {
    let bench = Bench::of(|_, nth| match nth {
        ..3 => sized("416 Range Not Satisfiable", "", b""),
        _ => sized("200 OK", "", b"ok"),
    })
    .await;
    ended(&output(bench.bulk("/x\n", "")).await, 0);
    assert_eq!(bench.file("x"), b"ok");
}

#[tokio::test]
async fn bodies_are_compressed_on_request() {
    let data = "data ".repeat(200);
    let coded = gzip(data.as_bytes());
    let asks = |head: &str| head.contains("\r\ncontent-encoding: br,gzip\r\n");
    let bench = Bench::of(move |head, _| match asks(head) {
        true => sized("200 OK", "content-encoding: gzip\r\n", &coded),
        false => sized("200 OK", "", b"plain"),
    })
    .await;
    for (more, data) in [("", "plain"), ("--compress", &*data)] {
        ended(&output(bench.bulk("/a\n/b\n", more)).await, 0);
        assert_eq!(
            ["a", "b"].map(|name| bench.file(name)),
            [data.as_bytes(); 2]
        );
        fs::remove_dir_all(bench.path("files")).expect("it was made");
    }
    let asked: Vec<_> = bench.heads().iter().map(|head| asks(head)).collect();
    assert_eq!(asked, [false, false, true, true]);
}

#[tokio::test]
async fn sockets_stay_within_the_limit_whatever_the_jobs() {
    // Many plain bodies are under way together, on a machine that makes 14 calls a second as well.
    at_once(
        [(50_000, ""), (200_000, "--compress")],
        |(rate, more)| async move {
            let bench = Bench::new().await;
            let list = format!("/v1/history/{{0..89}}?bytes=200000&rate={rate}\t{{}}\n");
            let run = output(bench.bulk(&list, &format!("--jobs 80 {more}"))).await;
            assert_eq!(run.status.code(), Some(0), "{}", err(&run));
            let first = bench.file("0");
            assert_eq!(first.len(), 200_000);
            assert!(
                (1..90).all(|n| bench.file(&n.to_string()) == first),
                "{more}"
            );
            let seen = bench.summary();
            assert!(seen.peak_sockets <= 60, "{seen:?}");
            // Compressed files arrive too soon to need many sockets.
            assert!(!more.is_empty() || seen.peak_sockets > 40, "{seen:?}");
            assert_eq!(seen.by_status, [(200, 90)].into());
        },
    )
    .await;
}
