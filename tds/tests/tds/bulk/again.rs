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

use serde_json::Value;

use crate::{
    Bench,
    answers::range,
    at_once, end, ended, err, live, output, path_of, piped, says, until,
    upstream::{Upstream, answer, sized},
};

#[tokio::test]
async fn killed_run_leaves_a_part_that_its_target_resumes() {
    let cases = [
        ("/x\tx\n", None, Some(100_000)),
        ("/other\tx\n", None, None),
        // The part is one from before the last start of the machine.
        ("/x\tx\n", Some("another"), None),
    ];
    at_once(cases, |(line, boot, start)| async move {
        let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let whole = body.clone();
        let cuts = Arc::new(AtomicBool::new(true));
        let is_cut = Arc::clone(&cuts);
        let bench = Bench::of(move |head, _| {
            let start = range(head).unwrap_or_default();
            let (left, total) = (&whole[start..], whole.len());
            let headers = format!(
                "etag: \"v1\"\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{}/{total}\r\n",
                left.len(),
                total - 1
            );
            let sent = match (is_cut.load(Ordering::Relaxed), start) {
                (true, 0) => &left[..100_000],
                (true, _) => &[],
                (false, _) => left,
            };
            let status = ["200 OK", "206 Partial Content"][usize::from(start > 0)];
            answer(status, &headers, sent)
        })
        .await;
        let mut run = piped(bench.bulk("/x\tx\n", ""));
        until(async || bench.heads().len() >= 2).await;
        run.kill().expect("it runs");
        run.wait().expect("it ends");
        let part = fs::metadata(bench.path("files/x.part")).expect("it was cut");
        assert_eq!(part.len(), 100_000);
        if let Some(boot) = boot {
            let manifest = String::from_utf8(bench.file(".tds-manifest.jsonl")).expect("text");
            let (before, _) = manifest.rsplit_once("\"part\":\"").expect("a part");
            let other = format!("{before}\"part\":\"{boot}\"}}\n");
            bench.write("files/.tds-manifest.jsonl", other);
        }

        cuts.store(false, Ordering::Relaxed);
        let before = bench.heads().len();
        ended(&output(bench.bulk(line, "")).await, 0);
        assert!(bench.file("x") == body, "byte-equal");
        assert_eq!(bench.files(), ["x"]);
        let heads = bench.heads();
        let [head] = &heads[before..] else {
            unreachable!("one request: {heads:?}")
        };
        assert_eq!(range(head), start, "{head}");
        let is_conditional = head.contains("\r\nif-range: \"v1\"\r\n");
        assert_eq!(is_conditional, start.is_some());
    })
    .await;
}

#[tokio::test]
async fn list_of_missing_files_can_be_run() {
    let mut bench = Bench::new().await;
    let list = "/v1/live/a\n/nothing/there\tday/公車\n/v1/live/c\tc.json\n";
    let run = output(bench.bulk(list, "")).await;
    ended(&run, 1);
    let again = |bench: &Bench, run: &Output| {
        let lines = bench.report(run)["again"].clone();
        let lines = lines.as_array().expect("a list").iter().map(Value::as_str);
        lines
            .map(|line| line.expect("text").to_owned() + "\n")
            .collect::<String>()
    };
    let first = again(&bench, &run);
    assert_eq!(first, "/nothing/there\tday/公車\n");
    bench.upstream = Some(Upstream::start(|_, _| sized("200 OK", "", b"ok")));
    let mut run = bench.tds("bulk --list - --out files --json --rerun rerun");
    run.stdin(Stdio::piped());
    let mut run = piped(run);
    let mut stdin = run.stdin.take().expect("it is piped");
    stdin.write_all(first.as_bytes()).expect("it reads");
    drop(stdin);
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(bench.file("day/公車"), b"ok");
    assert_eq!(
        (&bench.report(&run)["total"], again(&bench, &run)),
        (&1.into(), String::new())
    );
    assert_eq!(bench.heads().len(), 1);
}

/// Reproducer: a run without settings wrote invented data, and a run with real settings kept it.
#[tokio::test]
async fn file_is_skipped_only_for_the_same_url_and_service() {
    let bench = Bench::of(|head, _| sized("200 OK", "", path_of(head).as_bytes())).await;
    ended(
        &output(bench.bulk("/v1/live/bus\tbus\n", "--simulate")).await,
        0,
    );
    assert_ne!(bench.file("bus"), b"/v1/live/bus");
    for (target, told) in [
        ("/v1/live/bus", "bus: came from another URL"),
        ("/v1/live/bus", ""),
        // A run with another URL under the same name replaces the file.
        ("/v1/live/metro", "bus: came from another URL"),
    ] {
        let run = output(bench.bulk(&format!("{target}\tbus\n"), "")).await;
        ended(&run, 0);
        says(&run, told);
        assert_eq!(err(&run).contains("downloaded again"), !told.is_empty());
        let result = if told.is_empty() { "skipped" } else { "ok" };
        assert_eq!(bench.report(&run)[result], 1);
        assert_eq!(bench.file("bus"), target.as_bytes());
        assert!(!told.is_empty() || err(&run).is_empty(), "{}", err(&run));
    }
}

#[tokio::test]
async fn file_of_unknown_origin_is_kept_until_its_download_succeeds() {
    let bench = Bench::new().await;
    for name in ["files/v1_live_bus", "files/nothing"] {
        bench.write(name, "of somebody");
    }
    let run = output(bench.bulk("/v1/live/bus\n/nothing\n", "")).await;
    ended(&run, 1);
    says(&run, "is not in .tds-manifest.jsonl");
    says(&run, "downloaded again");
    assert_eq!(bench.file("v1_live_bus"), live("bus").as_bytes());
    assert_eq!(bench.file("nothing"), b"of somebody");

    // A line that was cut is no entry, and costs no other.
    let manifest = bench.file(".tds-manifest.jsonl");
    let cut = [&*manifest, b"{\"file\":\"noth"].concat();
    bench.write("files/.tds-manifest.jsonl", cut);
    for skipped in [1, 2] {
        let run = output(bench.bulk("/v1/live/bus\n/v1/live/rail\n", "")).await;
        ended(&run, 0);
        assert_eq!(bench.report(&run)["skipped"], skipped, "{}", err(&run));
    }
}
