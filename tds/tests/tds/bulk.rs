//! `tds bulk`: whole files or none, and a second run for the rest.

mod again;
mod disk;
mod ending;
mod long;
mod outage;
mod page;
mod verify;

use std::{fmt::Write as _, fs, process::Output};

use serde_json::Value;
use tds_sim::{Config, ErrorBody};

use crate::{
    Bench, at_once, end, err, live, out, output, piped, signal, text,
    upstream::{Upstream, answer},
};

impl Bench {
    /// `tds bulk` of these lines.
    fn bulk(&self, lines: &str, more: &[&str]) -> std::process::Command {
        fs::write(self.path("list"), lines).expect("a file");
        let (list, files, rerun) = (self.path("list"), self.path("files"), self.path("rerun"));
        let mut arguments = vec!["bulk", "--list", text(&list), "--out", text(&files)];
        arguments.extend(["--json", "--rerun", text(&rerun)]);
        arguments.extend(more);
        self.tds(&arguments)
    }

    /// The sums of a run, which have to be those of the list.
    fn report(&self, run: &Output) -> Value {
        let last = out(run);
        let last = last.lines().last().expect("the sums");
        let mut report: Value = serde_json::from_str(last).expect("JSON");
        let again = fs::read_to_string(self.path("rerun")).expect("a list");
        report["again"] = again.lines().map(Value::from).collect();
        let count = |name: &str| report[name].as_u64().expect("a number");
        let failed = report["failed"].as_object().expect("by kind");
        let failed: u64 = failed.values().filter_map(Value::as_u64).sum();
        let sum = count("ok") + count("skipped") + failed + count("unfinished");
        assert_eq!(sum, count("total"), "{report}");
        let again = report["again"].as_array().expect("a list").len();
        assert_eq!(
            u64::try_from(again),
            Ok(failed + count("unfinished")),
            "{report}"
        );
        report
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.path("files")).expect("the folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.retain(|name| ![".tds.lock", ".tds-manifest.jsonl"].contains(&&**name));
        names.sort();
        names
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path("files").join(name)).expect("it is there")
    }
}

fn lives(count: u32) -> String {
    (0..count).fold(String::new(), |mut lines, n| {
        writeln!(lines, "/v1/live/bus-{n}").expect("memory");
        lines
    })
}

fn ended(run: &Output, code: i32) {
    assert_eq!(run.status.code(), Some(code), "{}{}", out(run), err(run));
}

#[tokio::test]
async fn files_are_byte_equal_and_targets_are_sent_unchanged() {
    let bench = Bench::new("bulk-equal", Config::default()).await;
    let odd = "/v1/live/odd?$filter=line%20eq%20'307'&%24top=5";
    let list = format!(
        "# days\n{}\r\n{odd}\n/v1/live/公車\tbus/公車.json\n/v1/live/%E5%85%AC\n\n",
        lives(60)
    );
    let run = output(bench.bulk(&list, &[])).await;
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
    assert!(
        String::from_utf8(bench.file("bus/公車.json"))
            .expect("text")
            .contains("%E5%85%AC%E8%BB%8A")
    );
    assert!(!bench.files().iter().any(|name| name.contains(".part")));

    let ledger = bench.server.ledger();
    let seen = ledger.summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 63));
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    let arrivals = ledger.arrivals();
    for target in [odd, "/v1/live/%E5%85%AC%E8%BB%8A", "/v1/live/%E5%85%AC"] {
        assert!(
            arrivals.iter().any(|arrival| &*arrival.target == target),
            "{target}"
        );
    }
    assert_eq!(bench.report(&run)["ok"], 63);

    // A second run has nothing to do. After a file is removed, a run downloads that file.
    let run = output(bench.bulk(&list, &[])).await;
    ended(&run, 0);
    assert_eq!(bench.report(&run)["skipped"], 63);
    fs::remove_file(bench.path("files").join("v1_live_bus-7")).expect("it is there");
    ended(&output(bench.bulk(&list, &[])).await, 0);
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 64));
}

#[tokio::test]
async fn range_makes_one_file_for_each_value() {
    let bench = Bench::new("bulk-ranges", Config::default()).await;
    let list = "/v1/live/bus-{08..11}\n/v1/live/{a}..b\n\
                /v1/live/{2024-02-27..2024-03-01}?n={1..2}\t{}/{}.json\n";
    let run = output(bench.bulk(&list.replace("{a}..b", "a"), &[])).await;
    ended(&run, 0);
    let events: Vec<Value> = out(&run)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(events.len(), 4 + 1 + 8 + 1);
    let last = events.last().expect("the sums");
    assert_eq!((&last["event"], &last["ok"]), (&"end".into(), &13.into()));
    let leap = events
        .iter()
        .find(|event| event["file"] == "2024-02-29/2.json");
    let leap = leap.expect("a leap day");
    assert_eq!(leap["url"], "/v1/live/2024-02-29?n=2");
    assert_eq!(
        (&leap["result"], &leap["bytes"]),
        (&"ok".into(), &128.into())
    );
    assert_eq!(bench.file("v1_live_bus-08"), live("bus-08").as_bytes());
    let manifest = fs::read_to_string(bench.path("files/.tds-manifest.jsonl"));
    let manifest = manifest.expect("it is there");
    let entry: Value =
        serde_json::from_str(manifest.lines().last().expect("a line")).expect("JSON");
    for field in ["file", "url", "base_url", "etag", "length", "time"] {
        assert!(!entry[field].is_null(), "{field}: {entry}");
    }
    let seen = bench.server.ledger().summary();
    assert_eq!(seen.by_status, [(200, 13)].into());
    for (list, told) in [
        ("/v1/{2..1}\n", "is not a range of"),
        ("/v1/{10..9}\n", "is not a range of"),
        ("/v1/h/{1..3\n", "is not closed"),
        ("/v1/{1..3}/{a,b\n", "is not closed"),
        ("/v1/{a..b}\n", "is not a range of"),
        (
            "/v1/{2023-02-29..2023-03-01}\n",
            "that exist, the earliest first",
        ),
        (
            "/v1/{2023-02-01..2023-02-31}\n",
            "that exist, the earliest first",
        ),
        ("/v1/{1..2000}/{1..2000}\n", "more than 1000000 files"),
        ("/v1/{1..2}\tx\n", "has the same file name, x:"),
        ("/v1/{a,b}\tx\n", "has the same file name, x:"),
        ("/v1/{1..2}-{a,b}\t{}\n", "has the same file name, 1:"),
        ("/v1/{1..2}\t{}-{}\n", "no range of the path fills"),
        ("/v1/live\t{}\n", "no range of the path fills"),
        ("/v1/{2024-13..2025-01}\n", "that exist, the earliest first"),
        ("/v1/{2025-02..2025-01}\n", "that exist, the earliest first"),
        ("/v1/{2025-02..2025-03-01}\n", "is not a range"),
    ] {
        let run = output(bench.bulk(list, &[])).await;
        ended(&run, 2);
        assert!(err(&run).contains(told), "{}", err(&run));
    }
    // Months and words are ranges, too, and braces that are neither are sent.
    let list = "/v1/live/{2024-11..2025-02}\n/v1/live/{bus,metro}-{1..2}\t{}/{}\n/v1/live/{x}?q={a:1,b:2}\tz\n";
    let run = output(bench.bulk(list, &[])).await;
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
    assert!(
        sent.iter()
            .any(|call| &*call.target == "/v1/live/{x}?q={a:1,b:2}")
    );
    // A file that was changed is downloaded again.
    fs::write(bench.path("files/v1_live_a"), "short").expect("it is ours");
    ended(&output(bench.bulk("/v1/live/a\n", &[])).await, 0);
    assert_eq!(bench.file("v1_live_a"), live("a").as_bytes());
}

#[tokio::test]
async fn interrupt_leaves_complete_files_and_a_correct_report() {
    let bench = Bench::new("bulk-int", Config::default()).await;
    let run = piped(bench.bulk(&lives(400), &[]));
    bench.seen(|seen| seen.complete >= 60).await;
    signal(&run, "-INT");
    let run = end(run).await;
    ended(&run, 1);
    let report = bench.report(&run);
    assert_eq!(report["ended_by"], "interrupted");
    let whole = bench
        .files()
        .iter()
        .filter(|name| !name.contains(".part"))
        .count();
    // The file of each worker may have got its name at the end of the run.
    let told = report["ok"]
        .as_u64()
        .and_then(|told| usize::try_from(told).ok());
    let told = told.expect("a number");
    assert!((told..=told + 40).contains(&whole), "{told} and {whole}");
    assert!(whole < 400);
}

#[tokio::test]
async fn revoked_tokens_lose_no_file() {
    at_once(
        [("text", ErrorBody::Text), ("json", ErrorBody::Json)],
        |(name, body)| async move {
            let mut config = Config::default();
            config.error_body = body;
            let bench = Bench::new(&format!("bulk-revoke-{name}"), config).await;
            let run = piped(bench.bulk(&lives(120), &[]));
            bench.seen(|seen| seen.complete >= 50).await;
            bench.server.sim().revoke_all();
            ended(&end(run).await, 0);
            assert_eq!(bench.files().len(), 120);
            let seen = bench.server.ledger().summary();
            assert_eq!(seen.token_posts, 2, "{seen:?}");
            assert_eq!(seen.by_status.get(&200), Some(&120));
        },
    )
    .await;
}

#[tokio::test]
async fn expiring_tokens_are_renewed_in_time() {
    let mut config = Config::default();
    config.expires_in = 4;
    let bench = Bench::new("bulk-expiry", config).await;
    ended(&output(bench.bulk(&lives(250), &[])).await, 0);
    assert_eq!(bench.files().len(), 250);
    let seen = bench.server.ledger().summary();
    assert_eq!(seen.by_status, [(200, 250)].into(), "none was refused");
    assert!(seen.token_posts >= 2, "{seen:?}");
}

#[tokio::test]
async fn part_of_another_file_is_not_resumed() {
    // The service answers with a 200 of the whole, with a refusal of the range, or with a range
    // that was not requested.
    at_once(
        [
            ("changed", "200 OK", "etag: \"v2\"\r\ncontent-length: 3\r\n"),
            (
                "refused",
                "416 Range Not Satisfiable",
                "content-range: bytes */3\r\ncontent-length: 3\r\n",
            ),
            ("weak", "200 OK", "etag: W/\"v1\"\r\ncontent-length: 3\r\n"),
            (
                "shorter",
                "206 Partial Content",
                "etag: \"v1\"\r\ncontent-length: 3\r\ncontent-range: bytes 5-7/9\r\n",
            ),
            (
                "mixed",
                "206 Partial Content",
                "etag: \"v2\"\r\ncontent-length: 3\r\ncontent-range: bytes 5-7/8\r\n",
            ),
        ],
        |(name, status, headers)| async move {
            let bench = Bench::new(&format!("bulk-{name}"), Config::default()).await;
            let upstream = Upstream::start(move |head, nth| {
                if nth == 0 {
                    let tag = if name == "weak" { "W/\"v1\"" } else { "\"v1\"" };
                    let cut = format!("etag: {tag}\r\ncontent-length: 9\r\n");
                    return answer("200 OK", &cut, b"12345");
                }
                if head.contains("\r\nrange: ") {
                    assert_ne!(name, "weak", "a weak tag is of no bytes");
                    return answer(status, headers, b"abc");
                }
                answer("200 OK", "content-length: 3\r\n", b"abc")
            });
            let mut run = bench.bulk("/x\n", &[]);
            run.env("TDS_BASE_URL", &upstream.url);
            ended(&output(run).await, 0);
            assert_eq!(bench.file("x"), b"abc", "{name}");
            assert_eq!(bench.files(), ["x"], "{name}");
        },
    )
    .await;
}

#[tokio::test]
async fn file_arrives_after_416_responses() {
    let bench = Bench::new("bulk-416", Config::default()).await;
    let upstream = Upstream::start(|_, nth| match nth {
        ..3 => answer("416 Range Not Satisfiable", "content-length: 0\r\n", b""),
        _ => answer("200 OK", "content-length: 2\r\n", b"ok"),
    });
    let mut run = bench.bulk("/x\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    assert_eq!(bench.file("x"), b"ok");
}

#[tokio::test]
async fn bodies_are_compressed_on_request() {
    let bench = Bench::new("bulk-compress", Config::default()).await;
    let upstream =
        Upstream::start(
            |head, _| match head.contains("\r\ncontent-encoding: br,gzip\r\n") {
                true => {
                    let headers = format!(
                        "content-encoding: gzip\r\ncontent-length: {}\r\n",
                        GZIP.len()
                    );
                    answer("200 OK", &headers, &GZIP)
                }
                false => answer("200 OK", "content-length: 5\r\n", b"plain"),
            },
        );
    let data = "data ".repeat(200);
    for (more, data) in [(&[][..], "plain"), (&["--compress"], &*data)] {
        let mut run = bench.bulk("/a\n/b\n", more);
        run.env("TDS_BASE_URL", &upstream.url);
        ended(&output(run).await, 0);
        for name in ["a", "b"] {
            assert_eq!(bench.file(name), data.as_bytes());
        }
        fs::remove_dir_all(bench.path("files")).expect("it was made");
    }
    let heads = upstream.heads();
    let asks = |head: &String| head.contains("\r\ncontent-encoding: br,gzip\r\n");
    assert_eq!(
        heads.iter().map(asks).collect::<Vec<_>>(),
        [false, false, true, true]
    );
}

#[tokio::test]
async fn sockets_stay_within_the_limit_whatever_the_jobs() {
    at_once(
        // Many plain bodies are under way together, on a machine that makes 14 calls a second as well.
        [
            ("plain", 50_000, &[][..]),
            ("coded", 200_000, &["--compress"]),
        ],
        |(name, rate, more)| async move {
            let bench = Bench::new(&format!("bulk-{name}"), Config::default()).await;
            let list: String = (0..90)
                .map(|n| format!("/v1/history/{n}?bytes=200000&rate={rate}\n"))
                .collect();
            let more = [more, &["--jobs", "80"]].concat();
            ended(&output(bench.bulk(&list, &more)).await, 0);
            let first = bench.file(&format!("v1_history_0_bytes=200000_rate={rate}"));
            assert_eq!(first.len(), 200_000);
            for n in 1..90 {
                let other = bench.file(&format!("v1_history_{n}_bytes=200000_rate={rate}"));
                assert!(other == first, "{name} {n}");
            }
            let seen = bench.server.ledger().summary();
            assert!(seen.peak_sockets <= 60, "{seen:?}");
            // Compressed files arrive too soon to need many sockets.
            assert!(name == "coded" || seen.peak_sockets > 40, "{seen:?}");
            assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
        },
    )
    .await;
}

/// `data ` two hundred times.
const GZIP: [u8; 33] = [
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 75, 73, 44, 73, 84, 72, 25, 37, 70, 137, 81, 98, 56, 19, 0,
    116, 54, 157, 9, 232, 3, 0, 0,
];
