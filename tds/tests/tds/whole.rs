//! Each file is whole or absent, whatever the responses are and with other writers in the folder.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
    sync::Mutex,
};

use tds_sim::Config;
use tokio::time::{Duration, sleep, timeout};

use crate::{
    Bench, HANGS, end, err, live, out, output, piped, signal, text,
    upstream::{Upstream, answer},
};

impl Bench {
    /// `tds bulk` of these lines into this folder.
    fn bulk_to(&self, folder: &str, lines: &str, more: &[&str]) -> Command {
        let folder = self.path(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let list = folder.join("list");
        fs::write(&list, lines).expect("a file");
        let arguments = ["bulk", "--list", text(&list), "--out", text(&folder)];
        self.tds(&[&arguments[..], more].concat())
    }
}

fn ended(run: &Output, code: i32) {
    assert_eq!(run.status.code(), Some(code), "{}{}", out(run), err(run));
}

async fn until(what: impl Fn() -> bool) {
    let waited = async {
        while !what() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANGS, waited).await.expect("it comes to that");
}

#[tokio::test]
async fn part_is_completed_only_by_bytes_of_its_range() {
    let bench = Bench::new("whole-range", Config::default()).await;
    let asked = Mutex::new(BTreeSet::new());
    let upstream = Upstream::start(move |head, _| {
        let path = head.split(' ').nth(1).expect("a path").to_owned();
        if !head.contains("\r\nrange: ") {
            let is_first = asked.lock().expect("no panic").insert(path);
            let sent: &[u8] = if is_first { b"1234" } else { b"12345678" };
            return answer("200 OK", "etag: \"v1\"\r\ncontent-length: 8\r\n", sent);
        }
        let (range, framing, body): (_, _, &[u8]) = match &*path {
            "/short" => ("4-7/8", "content-length: 2", b"ab"),
            "/marked" => (
                "4-7/8",
                "transfer-encoding: chunked",
                b"2\r\nab\r\n0\r\n\r\n",
            ),
            "/all" => ("4-7/8", "content-length: 8", b"12345678"),
            "/longer" => ("4-9/10", "content-length: 6", b"567890"),
            _ => ("4-7/8", "content-length: 4", b"5678"),
        };
        let headers = format!("etag: \"v1\"\r\ncontent-range: bytes {range}\r\n{framing}\r\n");
        answer("206 Partial Content", &headers, body)
    });
    let mut run = bench.bulk_to("files", "/short\n/marked\n/all\n/longer\n/right\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    for name in ["short", "marked", "all", "longer", "right"] {
        let file = fs::read(bench.path("files").join(name)).expect("it is there");
        assert_eq!(file, b"12345678", "{name}");
    }
    let heads = upstream.heads();
    let of = |path: &str| heads.iter().filter(|head| head.contains(path)).count();
    assert_eq!((of(" /right "), of(" /short ")), (2, 3));
}

#[tokio::test]
async fn two_runs_do_not_write_one_file_through_two_folders() {
    let bench = Bench::new("whole-nested", Config::default()).await;
    let slow = "/v1/history/1?bytes=200000&rate=50000\tb/x\n";
    let first = piped(bench.bulk_to("files", slow, &[]));
    let part = bench.path("files").join("b/x.part");
    until(|| fs::metadata(&part).is_ok_and(|part| part.len() > 0)).await;
    let second = output(bench.bulk_to("files/b", "/v1/live/bus\tx\n", &[])).await;
    ended(&second, 1);
    assert!(err(&second).contains("another run"), "{}", err(&second));
    ended(&end(first).await, 0);
    let file = fs::read(bench.path("files").join("b/x")).expect("it is there");
    assert_eq!(file.len(), 200_000);
}

#[tokio::test]
async fn part_is_not_written_through_a_symbolic_link() {
    let bench = Bench::new("whole-link", Config::default()).await;
    let (mine, none) = (bench.path("mine"), bench.path("none"));
    fs::write(&mine, "mine").expect("a file");
    let run = bench.bulk_to(
        "files",
        "/v1/live/x\tx\n/v1/live/y\ty\n/v1/live/z\tz\n",
        &[],
    );
    for (name, to) in [("x", &mine), ("y", &none)] {
        let part = bench.path("files").join(format!("{name}.part"));
        std::os::unix::fs::symlink(to, part).expect("a link");
    }
    let run = output(run).await;
    ended(&run, 1);
    assert!(err(&run).contains("link"), "{}", err(&run));
    assert_eq!(fs::read_to_string(mine).expect("it is there"), "mine");
    assert!(!none.exists());
    for (name, is_there) in [("x", false), ("y", false), ("z", true)] {
        let file = bench.path("files").join(name);
        assert_eq!(fs::symlink_metadata(file).is_ok(), is_there, "{name}");
    }
}

#[tokio::test]
async fn run_replaces_the_part_of_a_killed_run() {
    let bench = Bench::new("whole-killed", Config::default()).await;
    let folder = bench.path("files");
    fs::create_dir_all(&folder).expect("a folder");
    let list = bench.path("list");
    fs::write(&list, "/v1/live/bus\tbus\n").expect("a file");
    let (bus, part) = (folder.join("bus"), folder.join("bus.part"));
    fs::write(folder.join(".tds.lock"), "somebody's data").expect("a file");
    let poll = ["poll", "--list", text(&list), "--out", text(&folder)];
    for job in [
        &["get", "/v1/live/bus", "--out", text(&bus)][..],
        &[&poll[..], &["--rounds", "1"]].concat(),
    ] {
        fs::write(&part, "1".repeat(1_000)).expect("a file");
        ended(&bench.run(job).await, 0);
        assert!(!part.exists());
        let file = fs::read_to_string(&bus).expect("it is whole");
        assert_eq!(file, live("bus"));
        let lock = fs::read(folder.join(".tds.lock")).expect("it is there");
        assert_eq!(lock, b"somebody's data");
    }
}

#[tokio::test]
async fn the_first_failure_and_the_progress_are_printed() {
    let bench = Bench::new("whole-told", Config::default()).await;
    let upstream = Upstream::start(|_, _| {
        let headers = "retry-after: 3600\r\ncontent-length: 0\r\n";
        answer("503 Service Unavailable", headers, b"")
    });
    let mut run = bench.bulk_to("files", "/a\n/b\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    let mut run = piped(run);
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
    let bench = Bench::new("whole-hangup", Config::default()).await;
    let list = bench.path("list");
    fs::write(&list, "/v1/live/bus\n").expect("a file");
    let poll = ["poll", "--list", text(&list), "--every", "50ms"];
    let ends = piped(bench.tds(&poll));
    bench.seen(|seen| seen.complete >= 2).await;
    signal(&ends, "-HUP");
    ended(&end(ends).await, 0);

    let mut kept = Command::new("nohup");
    let plain = bench.tds(&poll);
    kept.arg(plain.get_program()).args(plain.get_args());
    let envs = plain
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    kept.envs(envs).stdin(Stdio::null());
    let kept = piped(kept);
    let before = bench.server.ledger().summary().complete;
    bench.seen(|seen| seen.complete >= before + 2).await;
    signal(&kept, "-HUP");
    let before = bench.server.ledger().summary().complete;
    bench.seen(|seen| seen.complete >= before + 5).await;
    signal(&kept, "-TERM");
    ended(&end(kept).await, 0);
}
