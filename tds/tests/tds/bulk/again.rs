//! The next run: resumed parts, and the list of missing files.

use std::{
    fs,
    io::Write as _,
    process::{Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tds_sim::Config;
use tokio::{task::yield_now, time::timeout};

use super::ended;
use crate::{
    Bench, HANGS, at_once, end, err, live, output, piped, text,
    upstream::{Upstream, answer},
};

/// Where the range of a head begins.
fn range(head: &str) -> Option<usize> {
    let (_, range) = head.split_once("\r\nrange: bytes=")?;
    range.split_once('-')?.0.parse().ok()
}

#[tokio::test]
async fn killed_run_leaves_a_part_that_its_target_resumes() {
    at_once([
        ("again-same", "/x\tx\n", None, Some(100_000)),
        ("again-other", "/other\tx\n", None, None),
        ("again-boot", "/x\tx\n", Some("another"), None),
    ], |(name, line, boot, start)| async move {
        let bench = Bench::new(name, Config::default()).await;
        let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let whole = body.clone();
        let cuts = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cuts);
        let upstream = Upstream::start(move |head, _| {
            let start = range(head).unwrap_or_default();
            let (left, total) = (&whole[start..], whole.len());
            let end = total - 1;
            let headers = format!(
                "etag: \"v1\"\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{end}/{total}\r\n",
                left.len()
            );
            let sent = match (is_cut.load(Ordering::Relaxed), start) {
                (true, 0) => &left[..100_000],
                (true, _) => &[],
                (false, _) => left,
            };
            let status = if start > 0 {
                "206 Partial Content"
            } else {
                "200 OK"
            };
            answer(status, &headers, sent)
        });
        let manifest = bench.path("files/.tds-manifest.jsonl");
        cuts.store(true, Ordering::Relaxed);
        let mut run = bench.bulk("/x\tx\n", &[]);
        run.env("TDS_BASE_URL", &upstream.url);
        let before = upstream.heads().len();
        let mut run = piped(run);
        let waited = timeout(HANGS, async {
            while upstream.heads().len() < before + 2 {
                yield_now().await;
            }
        });
        waited.await.expect("it goes on");
        run.kill().expect("it runs");
        run.wait().expect("it ends");
        let part = fs::metadata(bench.path("files/x.part")).expect("it was cut");
        assert_eq!(part.len(), 100_000);
        if let Some(boot) = boot {
            // Makes the part one from before the last start of the machine.
            let text = fs::read_to_string(&manifest).expect("it is there");
            let (before, _) = text.rsplit_once("\"part\":\"").expect("a part");
            fs::write(&manifest, format!("{before}\"part\":\"{boot}\"}}\n")).expect("it is ours");
        }

        cuts.store(false, Ordering::Relaxed);
        let before = upstream.heads().len();
        let mut run = bench.bulk(line, &[]);
        run.env("TDS_BASE_URL", &upstream.url);
        ended(&output(run).await, 0);
        assert!(bench.file("x") == body, "byte-equal");
        assert_eq!(bench.files(), ["x"]);
        let heads = upstream.heads();
        assert_eq!(range(&heads[before]), start, "{}", heads[before]);
        let is_conditional = heads[before].contains("\r\nif-range: \"v1\"\r\n");
        assert_eq!(is_conditional, start.is_some());
        assert_eq!(heads.len(), before + 1);
    })
    .await;
}

#[tokio::test]
async fn list_of_missing_files_can_be_run() {
    let bench = Bench::new("again-list", Config::default()).await;
    let list = "/v1/live/a\n/nothing/there\tday/公車\n/v1/live/c\tc.json\n";
    let run = output(bench.bulk(list, &[])).await;
    ended(&run, 1);
    let again = |run: &Output| {
        let report = bench.report(run);
        let lines = report["again"].as_array().expect("a list").clone();
        let lines = lines
            .iter()
            .map(|line| format!("{}\n", line.as_str().expect("text")));
        lines.collect::<String>()
    };
    let first = again(&run);
    assert_eq!(first, "/nothing/there\tday/公車\n");
    let upstream = Upstream::start(|_, _| answer("200 OK", "content-length: 2\r\n", b"ok"));
    let (files, rerun) = (bench.path("files"), bench.path("rerun"));
    let arguments = [
        "bulk",
        "--list",
        "-",
        "--out",
        text(&files),
        "--json",
        "--rerun",
        text(&rerun),
    ];
    let mut run = bench.tds(&arguments);
    run.env("TDS_BASE_URL", &upstream.url).stdin(Stdio::piped());
    let mut run = piped(run);
    let mut stdin = run.stdin.take().expect("it is piped");
    stdin.write_all(first.as_bytes()).expect("it reads");
    drop(stdin);
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(bench.file("day/公車"), b"ok");
    assert_eq!(
        (bench.report(&run)["total"].as_u64(), again(&run)),
        (Some(1), String::new())
    );
    assert_eq!(upstream.heads().len(), 1);
}

/// Reproducer: a run without settings wrote invented data, and a run with real settings kept it.
#[tokio::test]
async fn file_is_skipped_only_for_the_same_url_and_service() {
    let bench = Bench::new("again-origin", Config::default()).await;
    let list = "/v1/live/bus\tbus\n";
    ended(&output(bench.bulk(list, &["--simulate"])).await, 0);
    let invented = bench.file("bus");
    let upstream = Upstream::start(|head, _| {
        let path = head.split(' ').nth(1).expect("a path");
        let headers = format!("content-length: {}\r\n", path.len());
        answer("200 OK", &headers, path.as_bytes())
    });
    let real = async |list: &str| {
        let mut run = bench.bulk(list, &[]);
        run.env("TDS_BASE_URL", &upstream.url);
        let run = output(run).await;
        ended(&run, 0);
        (err(&run), bench.report(&run))
    };

    let (said, report) = real(list).await;
    assert!(said.contains("bus: came from another URL"), "{said}");
    assert!(said.contains("downloaded again"), "{said}");
    assert_eq!((&report["ok"], &report["skipped"]), (&1.into(), &0.into()));
    assert_ne!(bench.file("bus"), invented);
    assert_eq!(bench.file("bus"), b"/v1/live/bus");

    let (said, report) = real(list).await;
    assert_eq!(said, "", "the same file is skipped in silence");
    assert_eq!((&report["ok"], &report["skipped"]), (&0.into(), &1.into()));

    // A run with another URL under the same name replaces the file.
    let (said, report) = real("/v1/live/metro\tbus\n").await;
    assert!(said.contains("came from another URL"), "{said}");
    assert_eq!(report["ok"], 1);
    assert_eq!(bench.file("bus"), b"/v1/live/metro");
}

#[tokio::test]
async fn file_of_unknown_origin_is_kept_until_its_download_succeeds() {
    let bench = Bench::new("again-unknown", Config::default()).await;
    let files = bench.path("files");
    fs::create_dir_all(&files).expect("a folder");
    for name in ["v1_live_bus", "nothing"] {
        fs::write(files.join(name), "of somebody").expect("a file");
    }
    let run = output(bench.bulk("/v1/live/bus\n/nothing\n", &[])).await;
    ended(&run, 1);
    let said = err(&run);
    assert!(said.contains("is not in .tds-manifest.jsonl"), "{said}");
    assert!(said.contains("downloaded again"), "{said}");
    assert_eq!(bench.file("v1_live_bus"), live("bus").as_bytes());
    assert_eq!(bench.file("nothing"), b"of somebody");

    // A line that was cut is no entry, and costs no other.
    let manifest = files.join(".tds-manifest.jsonl");
    let cut = fs::read_to_string(&manifest).expect("it is there") + "{\"file\":\"noth";
    fs::write(&manifest, cut).expect("it is ours");
    for skipped in [1, 2] {
        let run = output(bench.bulk("/v1/live/bus\n/v1/live/rail\n", &[])).await;
        ended(&run, 0);
        assert_eq!(bench.report(&run)["skipped"], skipped, "{}", err(&run));
    }
}
