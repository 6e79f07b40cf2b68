//! `--verify` and `--dry-run`: what is there, by its SHA-256, and what a run would do.

use std::{fs, process::Output};

use crate::{
    Bench,
    answers::range,
    ended, err, events, out, output,
    upstream::{answer, sized},
};

/// The result of each file of a run, sorted.
fn results(run: &Output, field: &str) -> String {
    let events = events(&out(run));
    let files = events.iter().filter(|event| event["event"] != "end");
    let words = files.map(|event| format!("{} {}", event["file"], event[field]).replace('"', ""));
    let mut all: Vec<_> = words.collect();
    all.sort();
    all.join(",")
}

#[tokio::test]
async fn damaged_file_of_the_same_length_is_found_and_fetched_again_with_verify() {
    let bench = Bench::new().await;
    let run =
        async |more: &str| output(bench.bulk("/v1/history/{1..4}?bytes=70000\t{}\n", more)).await;
    ended(&run("").await, 0);
    let whole = bench.file("2");
    // Damages the first byte of one file, and the last one of another.
    for (name, at) in [("2", 0), ("3", 69_999)] {
        let mut bytes = bench.file(name);
        bytes[at] ^= 1;
        bench.write(&format!("files/{name}"), bytes);
    }
    for (more, field, found, calls) in [
        ("", "result", "1 skipped,2 skipped,3 skipped,4 skipped", 4),
        (
            "--verify --dry-run",
            "would",
            "1 skip,2 fetch,3 fetch,4 skip",
            4,
        ),
        ("--verify", "result", "1 skipped,2 ok,3 ok,4 skipped", 6),
        (
            "--verify",
            "result",
            "1 skipped,2 skipped,3 skipped,4 skipped",
            6,
        ),
    ] {
        let run = run(more).await;
        ended(&run, 0);
        assert_eq!(results(&run, field), found, "{more}");
        assert_eq!(bench.asked().1, calls, "{more}");
    }
    assert_eq!(bench.file("2"), whole);

    // An entry without a sum proves nothing.
    let lines = String::from_utf8(bench.file(".tds-manifest.jsonl")).expect("text");
    bench.write("files/.tds-manifest.jsonl", lines.replace("sha256", "md5"));
    let run = run("--verify").await;
    assert_eq!(bench.report(&run)["replaced"], 4, "{}", err(&run));
}

#[tokio::test]
async fn manifest_has_the_sum_of_whole_resumed_and_decoded_files() {
    let body: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    let whole = body.clone();
    let mut bench = Bench::of(move |head, nth| {
        let (start, total) = (range(head).unwrap_or_default(), whole.len());
        let headers = format!("etag: \"v1\"\r\ncontent-length: {}\r\n", total - start);
        if nth == 0 {
            return answer("200 OK", &headers, &whole[..90_000]);
        }
        let part = format!(
            "etag: \"v1\"\r\ncontent-range: bytes {start}-{}/{total}\r\n",
            total - 1
        );
        sized("206 Partial Content", &part, &whole[start..])
    })
    .await;
    ended(&output(bench.bulk("/x\tx\n", "")).await, 0);
    assert_eq!(bench.file("x"), body);
    assert!(bench.heads().len() > 1, "it was resumed");
    bench.upstream = None;
    ended(
        &output(bench.bulk("/v1/history/9?bytes=300000\ty\n", "--compress")).await,
        0,
    );

    let manifest = events(&String::from_utf8(bench.file(".tds-manifest.jsonl")).expect("text"));
    for name in ["x", "y"] {
        let mut entries = manifest.iter().rev();
        let entry = entries
            .find(|entry| entry["file"] == name)
            .expect("an entry");
        let mut sum = std::process::Command::new("sha256sum");
        sum.arg(bench.path("files").join(name));
        let sum = out(&output(sum).await);
        assert_eq!(entry["sha256"].as_str(), sum.split(' ').next(), "{name}");
    }
}

#[tokio::test]
async fn dry_run_prints_what_would_be_fetched_resumed_and_skipped_and_touches_nothing() {
    let bench = Bench::new().await;
    // At first nothing is there, not even the folder.
    let list = "/v1/live/a\ta\n/v1/live/b\tb\n/v1/live/c\tsub/c\n";
    let run = output(bench.bulk(list, "--dry-run")).await;
    ended(&run, 0);
    assert_eq!(results(&run, "would"), "a fetch,b fetch,sub/c fetch");
    assert!(!bench.path("files").exists() && !bench.path("rerun").exists());
    assert_eq!(bench.asked(), (0, 0));

    ended(&output(bench.bulk("/v1/live/a\ta\n", "")).await, 0);
    let manifest = bench.path("files/.tds-manifest.jsonl");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    let lines = fs::read_to_string(&manifest).expect("it is there");
    let part = lines
        .lines()
        .last()
        .expect("an entry")
        .replace("\"a\"", "\"b\"");
    let begun = format!(",\"part\":\"{}\"}}", boot.trim());
    let part = part.replace("/live/a", "/live/b").replace('}', &begun);
    fs::write(&manifest, format!("{lines}{part}")).expect("it is ours");
    bench.write("files/b.part", "0123456789");
    let there = || (bench.files(), fs::read(&manifest).expect("it is there"));
    let before = there();
    // A dry run works while another run has the folder locked.
    let lock = fs::File::open(bench.path("files/.tds.lock")).expect("it is there");
    lock.lock().expect("it is free");
    bench.list(list);
    let run = bench
        .ends(0, "bulk --list list --out files --dry-run")
        .await;
    let told = "skip\ta\t/v1/live/a\nresume\tb\t/v1/live/b\nfetch\tsub/c\t/v1/live/c\n";
    assert_eq!(out(&run), told);
    let sums = "tds: 3 files: 1 to fetch, 1 to resume, 1 to skip; nothing was requested\n";
    assert_eq!(err(&run), sums);
    let coded = output(bench.bulk(list, "--dry-run --compress")).await;
    assert_eq!(results(&coded, "would"), "a skip,b fetch,sub/c fetch");
    assert_eq!(there(), before);
    assert_eq!(bench.asked(), (1, 1));
}
