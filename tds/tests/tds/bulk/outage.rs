//! Outages of the service: one file at a time probes, the others wait, and no file is lost.

use std::time::Duration;

use tds_sim::{Config, Faults};
use tokio::time::sleep;

use super::{ended, lives};
use crate::{
    Bench, at_once, end, err, output, piped, signal,
    upstream::{Upstream, answer},
};

fn faults(data: &str, token: &str) -> Faults {
    let mut faults = Faults::default();
    for data in data.split_whitespace() {
        faults.data.push(data.parse().expect("a fault"));
    }
    for token in token.split_whitespace() {
        faults.token.push(token.parse().expect("a fault"));
    }
    faults
}

fn lines(run: &std::process::Output, with: &str) -> usize {
    err(run).lines().filter(|line| line.contains(with)).count()
}

/// A job of `files` through an outage of this length, which begins after forty files.
async fn night(name: &str, files: u32, outage: Duration, faults: Faults) -> (Bench, u64) {
    let bench = Bench::new(&format!("outage-{name}"), Config::default()).await;
    let run = piped(bench.bulk(&lives(files), &[]));
    bench.seen(|seen| seen.complete >= 40).await;
    let has_token_outage = !faults.token.is_empty();
    let sim = bench.server.sim();
    sim.set_faults(faults);
    if has_token_outage {
        sim.revoke_all();
    }
    let before = bench.server.ledger().summary();
    sleep(outage).await;
    let during = bench.server.ledger().summary();
    sim.set_faults(Faults::default());
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(
        bench.files().len(),
        usize::try_from(files).expect("few"),
        "{name}"
    );
    assert_eq!(lines(&run, "outage: "), 1, "{name}: {}", err(&run));
    assert_eq!(lines(&run, "outage over"), 1, "{name}: {}", err(&run));
    let report = bench.report(&run);
    assert_eq!(report["failed"], serde_json::json!({}), "{name}: {report}");
    (bench, during.data_calls - before.data_calls)
}

#[tokio::test]
async fn one_file_probes_during_an_outage_and_every_file_arrives() {
    at_once(
        [
            ("status", faults("503", "")),
            ("reset", faults("reset-head", "")),
            ("token", faults("", "503")),
        ],
        |(name, faults)| async move {
            // Longer than resets take until the first call is given up: each holds its permit.
            let (_bench, calls) = night(name, 100, Duration::from_secs(8), faults).await;
            eprintln!("{name}: {calls}");
            // The calls in flight, and the attempts of the client in them and in three probes.
            assert!(calls <= 40 * 3 + 3 * 3, "{name}: {calls}");
        },
    )
    .await;
}

#[tokio::test]
async fn outage_that_lasts_too_long_ends_the_job_and_leaves_the_rest_unfinished() {
    at_once(["1", "2", "60"], |files| async move {
        let bench = Bench::new(&format!("outage-end-{files}"), Config::default()).await;
        bench.server.sim().set_faults(faults("503", ""));
        let files: u32 = files.parse().expect("a number");
        let run = output(bench.bulk(&lives(files), &["--wait-outage", "2s"])).await;
        ended(&run, 5);
        let report = bench.report(&run);
        assert_eq!(report["unfinished"], files, "{report}");
        let why = report["ended_by"].as_str().expect("a reason");
        let lasted = why.split_once("outage for ").expect("its length").1;
        let (seconds, _) = lasted.split_once(" s:").expect("seconds");
        assert!(seconds.parse::<u64>().is_ok_and(|s| s >= 2), "{why}");
        // A later run does the rest.
        bench.server.sim().set_faults(Faults::default());
        ended(&output(bench.bulk(&lives(files), &[])).await, 0);
    })
    .await;
}

#[tokio::test]
async fn signal_ends_a_job_that_waits_for_the_end_of_an_outage() {
    let bench = Bench::new("outage-signal", Config::default()).await;
    bench.server.sim().set_faults(faults("503", ""));
    let run = piped(bench.bulk(&lives(60), &[]));
    bench
        .seen(|seen| seen.by_status.get(&503) >= Some(&12))
        .await;
    sleep(Duration::from_secs(2)).await;
    signal(&run, "-TERM");
    let run = end(run).await;
    ended(&run, 1);
    assert_eq!(bench.report(&run)["ended_by"], "interrupted");
    assert_eq!(lines(&run, "outage: "), 1, "{}", err(&run));
}

#[tokio::test]
async fn path_that_fails_alone_ends_as_a_failure_of_its_own() {
    let lists = [
        ("first", "/bad\n/a\n/b\n/c\n", "40"),
        ("last", "/a\n/b\n/c\n/bad\n", "40"),
        ("pair", "/a\n/bad\n/b\n/bad2\n", "40"),
        ("one", "/a\n/bad\n/b\n", "1"),
    ];
    at_once(lists, |(name, list, jobs)| async move {
        let bench = Bench::new(&format!("outage-alone-{name}"), Config::default()).await;
        let upstream = Upstream::start(|head, _| match head.starts_with("GET /bad") {
            true => answer("503 Service Unavailable", "content-length: 0\r\n", b""),
            false => answer("200 OK", "content-length: 2\r\n", b"ok"),
        });
        let mut run = bench.bulk(list, &["--jobs", jobs]);
        run.env("TDS_BASE_URL", &upstream.url);
        let run = output(run).await;
        ended(&run, 5);
        let report = bench.report(&run);
        assert_eq!(report["unfinished"], 0, "{name}: {report}");
        let bad = list.matches("bad").count();
        assert_eq!(report["failed"]["unavailable"], bad, "{name}: {report}");
        assert!(report["ended_by"].is_null(), "{name}: {report}");
    })
    .await;
}

#[tokio::test]
#[ignore = "40 s"]
async fn one_worker_loses_no_file_to_an_outage() {
    let bench = Bench::new("outage-worker", Config::default()).await;
    let upstream = Upstream::start(|_, nth| match nth {
        2..40 => answer("503 Service Unavailable", "content-length: 0\r\n", b""),
        _ => answer("200 OK", "content-length: 2\r\n", b"ok"),
    });
    let mut run = bench.bulk(&lives(6), &["--jobs", "1", "--wait-outage", "5m"]);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = output(run).await;
    ended(&run, 0);
    assert_eq!(bench.files().len(), 6);
}

#[tokio::test]
#[ignore = "six minutes"]
async fn night_of_600_files_outlasts_two_outages() {
    let bench = Bench::new("outage-night", Config::default()).await;
    let run = piped(bench.bulk(&lives(600), &[]));
    let sim = bench.server.sim();
    for (complete, seconds) in [(100, 25), (300, 300)] {
        bench.seen(|seen| seen.complete >= complete).await;
        sim.set_faults(faults("503", ""));
        sleep(Duration::from_secs(seconds)).await;
        sim.set_faults(Faults::default());
    }
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(bench.files().len(), 600);
    assert_eq!(lines(&run, "outage: "), 2, "{}", err(&run));
    assert_eq!(lines(&run, "outage over"), 2, "{}", err(&run));
    assert!(err(&run).lines().count() <= 24, "one screen: {}", err(&run));
}
