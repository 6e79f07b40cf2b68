//! Each file is whole or absent, whatever the responses are and with other writers in the folder.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    process::Stdio,
    sync::Mutex,
};

use tokio::time::timeout;

use crate::{
    Bench, HANGS,
    answers::range,
    by, end, ended, live, output, path_of, piped, says, signal, until,
    upstream::{answer, sized},
};

#[tokio::test]
async fn part_is_completed_only_by_bytes_of_its_range() {
    let asked = Mutex::new(BTreeSet::new());
    let bench = Bench::of(move |head, _| {
        let path = path_of(head);
        if range(head).is_none() {
            let is_first = asked.lock().expect("no panic").insert(path.to_owned());
            let sent: &[u8] = if is_first { b"1234" } else { b"12345678" };
            return answer("200 OK", "etag: \"v1\"\r\ncontent-length: 8\r\n", sent);
        }
        let chunked = "transfer-encoding: chunked";
        let (range, framing, body): (_, _, &[u8]) = match path {
            "/short" => ("4-7/8", "content-length: 2", b"ab"),
            "/marked" => ("4-7/8", chunked, b"2\r\nab\r\n0\r\n\r\n"),
            "/all" => ("4-7/8", "content-length: 8", b"12345678"),
            "/longer" => ("4-9/10", "content-length: 6", b"567890"),
            _ => ("4-7/8", "content-length: 4", b"5678"),
        };
        let headers = format!("etag: \"v1\"\r\ncontent-range: bytes {range}\r\n{framing}\r\n");
        answer("206 Partial Content", &headers, body)
    })
    .await;
    let names = ["short", "marked", "all", "longer", "right"];
    ended(
        &output(bench.bulk(&names.map(|name| format!("/{name}\n")).concat(), "")).await,
        0,
    );
    assert_eq!(names.map(|name| bench.file(name)), [b"12345678"; 5]);
    let heads = bench.heads();
    let of = |path: &str| heads.iter().filter(|head| path_of(head) == path).count();
    assert_eq!((of("/right"), of("/short")), (2, 3));
}

#[tokio::test]
async fn two_runs_do_not_write_one_file_through_two_folders() {
    let bench = Bench::new().await;
    let slow = "/v1/history/1?bytes=200000&rate=50000\tb/x\n";
    let first = piped(bench.bulk(slow, ""));
    let part = bench.path("files/b/x.part");
    until(async || fs::metadata(&part).is_ok_and(|part| part.len() > 0)).await;
    bench.list("/v1/live/bus\tx\n");
    let second = bench.ends(1, "bulk --list list --out files/b").await;
    says(&second, "another run");
    ended(&end(first).await, 0);
    assert_eq!(bench.file("b/x").len(), 200_000);
}

#[tokio::test]
async fn part_is_not_written_through_a_symbolic_link() {
    let bench = Bench::new().await;
    let run = bench.bulk("/v1/live/x\tx\n/v1/live/y\ty\n/v1/live/z\tz\n", "");
    bench.write("mine", "mine");
    fs::create_dir_all(bench.path("files")).expect("a folder");
    for (name, to) in [("x", "mine"), ("y", "none")] {
        let part = bench.path(&format!("files/{name}.part"));
        symlink(bench.path(to), part).expect("a link");
    }
    let run = output(run).await;
    ended(&run, 1);
    says(&run, "link");
    assert_eq!(fs::read(bench.path("mine")).expect("it is there"), b"mine");
    assert!(!bench.path("none").exists());
    assert_eq!(bench.files(), ["x.part", "y.part", "z"]);
}

#[tokio::test]
async fn run_replaces_the_part_of_a_killed_run() {
    let bench = Bench::new().await;
    bench.list("/v1/live/bus\tbus\n");
    bench.write("files/.tds.lock", "somebody's data");
    for job in [
        "get /v1/live/bus --out files/bus",
        "poll --list list --out files --rounds 1",
    ] {
        bench.write("files/bus.part", "1".repeat(1_000));
        bench.ends(0, job).await;
        assert_eq!(bench.files(), ["bus"]);
        assert_eq!(bench.file("bus"), live("bus").as_bytes());
        assert_eq!(bench.file(".tds.lock"), b"somebody's data");
    }
}

#[tokio::test]
async fn the_first_failure_and_the_progress_are_printed() {
    let down = |_: &str, _| sized("503 Service Unavailable", "retry-after: 3600\r\n", b"");
    let bench = Bench::of(down).await;
    let mut run = piped(bench.bulk("/a\n/b\n", ""));
    let told = run.stderr.take().expect("it is piped");
    let told = tokio::task::spawn_blocking(move || {
        let told = BufReader::new(told).lines().map(|line| line.expect("text"));
        told.take(2).collect::<Vec<_>>()
    });
    let told = timeout(HANGS, told)
        .await
        .expect("it tells")
        .expect("no panic");
    assert!(
        told[0].contains("503") && told[0].contains("will retry"),
        "{told:?}"
    );
    assert!(told[1].contains("0/2 files"), "{told:?}");
    signal(&run, "-HUP");
    assert_eq!(run.wait().expect("it ends").code(), Some(1));
}

#[tokio::test]
async fn closed_terminal_ends_a_job_without_nohup() {
    let bench = Bench::new().await;
    bench.list("/v1/live/bus\n");
    let plain = || bench.tds("poll --list list --every 50ms");
    let more = async |calls| {
        let before = bench.summary().complete;
        bench.seen(|seen| seen.complete >= before + calls).await;
    };
    let ends = piped(plain());
    more(2).await;
    signal(&ends, "-HUP");
    ended(&end(ends).await, 0);

    let plain = plain();
    let mut kept = by("nohup", &[], &plain);
    kept.arg(plain.get_program()).args(plain.get_args());
    kept.stdin(Stdio::null());
    let kept = piped(kept);
    more(2).await;
    signal(&kept, "-HUP");
    more(5).await;
    signal(&kept, "-TERM");
    ended(&end(kept).await, 0);
}
