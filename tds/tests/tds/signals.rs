//! Signals end a job, also the first process of a container, and leave whole files.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command},
};

use crate::{
    Bench, at_once, by, end, ended, piped, serving::Serving, signal, signal_to, skipped, until,
};

/// The process that this one has started, once there is one.
async fn child_of(parent: &Child) -> String {
    let pid = parent.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let mut child = String::new();
    let is_there = async || {
        let children = fs::read_to_string(&children).expect("Linux says so");
        children
            .split(' ')
            .next()
            .unwrap_or_default()
            .clone_into(&mut child);
        !child.is_empty()
    };
    until(is_there).await;
    child
}

#[tokio::test]
async fn signals_end_the_first_process_of_a_container() {
    if skipped("unshare") {
        return;
    }
    let tried = Command::new("unshare").args(UNSHARED).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("not run: this machine lets nobody make namespaces");
        return;
    }
    at_once(
        [("-INT", 130), ("-TERM", 143), ("-HUP", 129)],
        |(sent, code)| async move {
            let bench = Bench::new().await;
            bench.fail("head=3600s");
            let plain = bench.tds("get /v1/live/bus --out bus.json");
            let mut first = by("unshare", &UNSHARED, &plain);
            first.arg(plain.get_program()).args(plain.get_args());
            let run = piped(first);
            bench.seen(|seen| seen.data_calls > 0).await;
            signal_to(&child_of(&run).await, sent);
            ended(&end(run).await, code);
            assert!(!bench.path("bus.json").exists());
            assert_eq!(bench.asked().1, 1);
        },
    )
    .await;
}

#[tokio::test]
async fn signal_ends_get_elsewhere() {
    at_once(
        [("-INT", 2), ("-TERM", 15), ("-HUP", 1)],
        |(sent, number)| async move {
            let bench = Bench::new().await;
            bench.fail("head=3600s");
            let run = piped(bench.tds("get /v1/live/bus --out bus.json"));
            bench.seen(|seen| seen.data_calls > 0).await;
            signal(&run, sent);
            assert_eq!(end(run).await.status.signal(), Some(number), "{sent}");
            assert!(!bench.path("bus.json").exists());
        },
    )
    .await;
}

#[tokio::test]
async fn signal_ends_a_backend_after_its_requests() {
    at_once(["-INT", "-TERM", "-HUP"], |sent| async move {
        let bench = Bench::new().await;
        let mut backend = bench.serve("--deadline 5s");
        // One response ends within the grace, and one would take a quarter of an hour.
        let head = |target| format!("GET {target} HTTP/1.1\r\nhost: localhost");
        let short = backend
            .send(&head("/v1/history/1?bytes=100000&rate=100000"))
            .await;
        let long = backend
            .send(&head("/v1/history/2?bytes=60000000&rate=100000"))
            .await;
        bench
            .seen(|seen| seen.by_status.get(&200) == Some(&2))
            .await;
        signal(&backend.child, sent);
        let whole = Serving::read(short).await;
        assert_eq!((whole.status, whole.body.len()), (200, 100_000), "{sent}");
        assert_eq!(Serving::read(long).await.status, 504, "{sent}");
        bench.seen(|seen| seen.in_progress == 0).await;
        let mut ended = None;
        let is_over = async || {
            ended = backend.child.try_wait().expect("it is ours");
            ended.is_some()
        };
        until(is_over).await;
        assert_eq!(ended.and_then(|ended| ended.code()), Some(0), "{sent}");
    })
    .await;
}

/// A process namespace, as in a container. It ends with the process that started it.
const UNSHARED: [&str; 6] = [
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
    "--",
];
