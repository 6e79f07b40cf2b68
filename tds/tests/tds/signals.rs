//! How signals end a job, also as the first process of a container, and what the job leaves.

use std::{
    fs,
    process::{Child, Command},
};

use tds_sim::Config;
use tokio::time::timeout;

use crate::{Bench, HANGS, at_once, by, end, err, piped, serving::Serving, signal, skipped, text};

/// A service that never answers.
async fn silent(name: &str) -> Bench {
    let mut config = Config::default();
    config.faults.before_head = "3600s".parse().expect("a delay");
    Bench::new(name, config).await
}

/// The process that this one has started, once there is one.
async fn child_of(parent: &Child) -> String {
    let pid = parent.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let waited = async {
        loop {
            let children = fs::read_to_string(&children).expect("Linux says so");
            if let Some(child) = children.split(' ').next().filter(|pid| !pid.is_empty()) {
                return child.to_owned();
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(HANGS, waited).await.expect("it starts one")
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
            let bench = silent(&format!("signals-first{sent}")).await;
            let file = bench.path("bus.json");
            let plain = bench.tds(&["get", "/v1/live/bus", "--out", text(&file)]);
            let mut first = by("unshare", &UNSHARED, &plain);
            first.arg(plain.get_program()).args(plain.get_args());
            let run = piped(first);
            bench.seen(|seen| seen.data_calls > 0).await;
            let child = child_of(&run).await;
            crate::signal_to(&child, sent);
            let run = end(run).await;
            assert_eq!(run.status.code(), Some(code), "{sent}: {}", err(&run));
            assert!(!file.exists());
            assert_eq!(bench.server.ledger().summary().data_calls, 1);
        },
    )
    .await;
}

#[tokio::test]
async fn signal_ends_get_elsewhere() {
    use std::os::unix::process::ExitStatusExt as _;

    at_once(
        [("-INT", 2), ("-TERM", 15), ("-HUP", 1)],
        |(sent, number)| async move {
            let bench = silent(&format!("signals-get{sent}")).await;
            let file = bench.path("bus.json");
            let run = piped(bench.tds(&["get", "/v1/live/bus", "--out", text(&file)]));
            bench.seen(|seen| seen.data_calls > 0).await;
            signal(&run, sent);
            assert_eq!(end(run).await.status.signal(), Some(number), "{sent}");
            assert!(!file.exists());
        },
    )
    .await;
}

#[tokio::test]
async fn signal_ends_a_backend_after_its_requests() {
    at_once(["-INT", "-TERM", "-HUP"], |sent| async move {
        let bench = Bench::new(&format!("signals-backend{sent}"), Config::default()).await;
        let mut backend =
            Serving::start(bench.tds(&["backend", "--listen", "127.0.0.1:0", "--deadline", "5s"]));
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
        let late = Serving::read(long).await;
        assert_eq!(late.status, 504, "{sent}");
        bench.seen(|seen| seen.in_progress == 0).await;
        let ended = timeout(HANGS, async {
            loop {
                if let Some(ended) = backend.child.try_wait().expect("it is ours") {
                    return ended;
                }
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(ended.await.expect("it ends").code(), Some(0), "{sent}");
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
