//! `--verify` and `--dry-run`: what is there, by its SHA-256, and what a run would do.

use std::{
    fs,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use tds_sim::Config;

use super::ended;
use crate::{
    Bench, err, out, output, text,
    upstream::{Upstream, answer},
};

/// The result of each file of a run, sorted.
fn results(run: &Output, field: &str) -> Vec<String> {
    let text = out(run);
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let files = lines.filter(|event| event["event"] != "end");
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    let mut all: Vec<_> = files
        .map(|event| word(&event["file"]) + " " + &word(&event[field]))
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn damaged_file_of_the_same_length_is_found_and_fetched_again_with_verify() {
    let bench = Bench::new("bulk-verify", Config::default()).await;
    let list = "/v1/history/{1..4}?bytes=70000\t{}\n";
    ended(&output(bench.bulk(list, &[])).await, 0);
    let whole = bench.file("2");
    let damage = |name: &str, at: usize| {
        let mut bytes = bench.file(name);
        bytes[at] ^= 1;
        fs::write(bench.path("files").join(name), bytes).expect("it is ours");
    };
    // Damages the first byte of one file, and the last one of another.
    damage("2", 0);
    damage("3", 69_999);
    let calls = || bench.server.ledger().summary().data_calls;
    let begun = calls();
    let run = output(bench.bulk(list, &[])).await;
    assert_eq!(
        results(&run, "result").join(","),
        "1 skipped,2 skipped,3 skipped,4 skipped"
    );
    let plan = output(bench.bulk(list, &["--verify", "--dry-run"])).await;
    assert_eq!(
        results(&plan, "would").join(","),
        "1 skip,2 fetch,3 fetch,4 skip"
    );
    assert_eq!(calls(), begun);

    let run = output(bench.bulk(list, &["--verify"])).await;
    ended(&run, 0);
    assert_eq!(
        results(&run, "result").join(","),
        "1 skipped,2 ok,3 ok,4 skipped"
    );
    assert_eq!(calls(), begun + 2);
    assert_eq!(bench.file("2"), whole);
    let run = output(bench.bulk(list, &["--verify"])).await;
    assert_eq!(
        results(&run, "result").join(","),
        "1 skipped,2 skipped,3 skipped,4 skipped"
    );

    // An entry without a sum proves nothing.
    let manifest = bench.path("files/.tds-manifest.jsonl");
    let lines = fs::read_to_string(&manifest).expect("it is there");
    fs::write(&manifest, lines.replace("sha256", "md5")).expect("it is ours");
    let run = output(bench.bulk(list, &["--verify"])).await;
    assert_eq!(bench.report(&run)["replaced"], 4, "{}", err(&run));
}

#[tokio::test]
async fn manifest_has_the_sum_of_whole_resumed_and_decoded_files() {
    let bench = Bench::new("bulk-sums", Config::default()).await;
    let body: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    let (whole, cuts) = (body.clone(), Arc::new(AtomicBool::new(true)));
    let is_cut = Arc::clone(&cuts);
    let upstream = Upstream::start(move |head, _| {
        let start = head
            .split_once("\r\nrange: bytes=")
            .and_then(|(_, rest)| rest.split_once('-'));
        let start: usize = start.map_or(0, |(start, _)| start.parse().expect("a number"));
        let end = if is_cut.swap(false, Ordering::Relaxed) {
            90_000
        } else {
            whole.len()
        };
        let (status, range) = match start {
            0 => ("200 OK", String::new()),
            _ => (
                "206 Partial Content",
                format!(
                    "content-range: bytes {start}-{}/{}\r\n",
                    whole.len() - 1,
                    whole.len()
                ),
            ),
        };
        let length = whole.len() - start;
        let headers = format!("etag: \"v1\"\r\ncontent-length: {length}\r\n{range}");
        answer(status, &headers, &whole[start..end])
    });
    let mut run = bench.bulk("/x\tx\n", &["--base-url", &upstream.url]);
    run.env_remove("TDS_BASE_URL");
    ended(&output(run).await, 0);
    assert_eq!(bench.file("x"), body);
    assert!(upstream.heads().len() > 1, "it was resumed");
    ended(
        &output(bench.bulk("/v1/history/9?bytes=300000\ty\n", &["--compress"])).await,
        0,
    );

    let manifest =
        fs::read_to_string(bench.path("files/.tds-manifest.jsonl")).expect("it is there");
    for name in ["x", "y"] {
        let mut entries = manifest
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let entry = entries
            .rfind(|entry| entry["file"] == name)
            .expect("an entry");
        let sum = Command::new("sha256sum")
            .arg(bench.path("files").join(name))
            .output();
        let sum = out(&sum.expect("coreutils are there"));
        assert_eq!(entry["sha256"].as_str(), sum.split(' ').next(), "{name}");
    }
}

#[tokio::test]
async fn dry_run_prints_what_would_be_fetched_resumed_and_skipped_and_touches_nothing() {
    let bench = Bench::new("bulk-plan", Config::default()).await;
    // At first nothing is there, not even the folder.
    let list = "/v1/live/a\ta\n/v1/live/b\tb\n/v1/live/c\tsub/c\n";
    let run = output(bench.bulk(list, &["--dry-run"])).await;
    ended(&run, 0);
    assert_eq!(
        results(&run, "would").join(","),
        "a fetch,b fetch,sub/c fetch"
    );
    assert!(!bench.path("files").exists() && !bench.path("rerun").exists());
    assert_eq!(bench.server.ledger().summary().token_posts, 0);

    ended(&output(bench.bulk("/v1/live/a\ta\n", &[])).await, 0);
    let manifest = bench.path("files/.tds-manifest.jsonl");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    let lines = fs::read_to_string(&manifest).expect("it is there");
    let part = lines
        .lines()
        .last()
        .expect("an entry")
        .replace("\"a\"", "\"b\"");
    let part = part
        .replace("/live/a", "/live/b")
        .replace('}', &format!(",\"part\":\"{}\"}}", boot.trim()));
    fs::write(&manifest, format!("{lines}{part}")).expect("it is ours");
    fs::write(bench.path("files/b.part"), "0123456789").expect("it is ours");
    let before = (bench.files(), fs::read(&manifest).expect("it is there"));
    // A dry run works while another run has the folder locked.
    let lock = fs::File::open(bench.path("files/.tds.lock")).expect("it is there");
    lock.lock().expect("it is free");
    let arguments = [
        "bulk",
        "--list",
        text(&bench.path("list")),
        "--out",
        text(&bench.path("files")),
    ]
    .map(str::to_owned);
    let arguments: Vec<_> = arguments
        .iter()
        .map(String::as_str)
        .chain(["--dry-run"])
        .collect();
    fs::write(bench.path("list"), list).expect("a file");
    let run = bench.run(&arguments).await;
    ended(&run, 0);
    assert_eq!(
        out(&run),
        "skip\ta\t/v1/live/a\nresume\tb\t/v1/live/b\nfetch\tsub/c\t/v1/live/c\n"
    );
    let sums = "tds: 3 files: 1 to fetch, 1 to resume, 1 to skip; nothing was requested\n";
    assert_eq!(err(&run), sums);
    let compressed = output(bench.bulk(list, &["--dry-run", "--compress"])).await;
    assert_eq!(
        results(&compressed, "would").join(","),
        "a skip,b fetch,sub/c fetch"
    );
    assert_eq!(
        (bench.files(), fs::read(&manifest).expect("it is there")),
        before
    );
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 1));
}
