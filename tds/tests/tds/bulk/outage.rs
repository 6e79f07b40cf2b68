//! Outages of the service: one file at a time probes, the others wait, and no file is lost.

use std::{process::Output, time::Duration};

use serde_json::json;
use tokio::time::sleep;

use super::lives;
use crate::{Bench, at_once, end, ended, err, output, path_of, piped, signal, upstream::sized};

/// Expects so many outages that are over.
fn outages(run: &Output, begun: usize, over: usize) {
    assert_eq!(err(run).matches("outage: ").count(), begun, "{}", err(run));
    assert_eq!(
        err(run).matches("outage over").count(),
        over,
        "{}",
        err(run)
    );
}

#[tokio::test]
async fn one_file_probes_during_an_outage_and_every_file_arrives() {
    at_once(["503", "reset-head", "token=503"], |faults| async move {
        let bench = Bench::new().await;
        let run = piped(bench.bulk(&lives(100), ""));
        bench.seen(|seen| seen.complete >= 40).await;
        bench.fail(faults);
        if faults.starts_with("token") {
            bench.server.sim().revoke_all();
        }
        let (_, before) = bench.asked();
        // Longer than resets take until the first call is given up: each holds its permit.
        sleep(Duration::from_secs(8)).await;
        let calls = bench.asked().1 - before;
        bench.fail("");
        let run = end(run).await;
        ended(&run, 0);
        assert_eq!(bench.files().len(), 100, "{faults}");
        outages(&run, 1, 1);
        assert_eq!(bench.report(&run)["failed"], json!({}), "{faults}");
        eprintln!("{faults}: {calls}");
        // The calls in flight, and the attempts of the client in them and in three probes.
        assert!(calls <= 40 * 3 + 3 * 3, "{faults}: {calls}");
    })
    .await;
}

#[tokio::test]
async fn outage_that_lasts_too_long_ends_the_job_and_leaves_the_rest_unfinished() {
    at_once([1, 2, 60], |files| async move {
        let bench = Bench::new().await;
        bench.fail("503");
        let run = output(bench.bulk(&lives(files), "--wait-outage 2s")).await;
        ended(&run, 5);
        let report = bench.report(&run);
        assert_eq!(report["unfinished"], files, "{report}");
        let why = report["ended_by"].as_str().expect("a reason");
        let lasted = why.split_once("outage for ").expect("its length").1;
        let (seconds, _) = lasted.split_once(" s:").expect("seconds");
        assert!(seconds.parse::<u64>().is_ok_and(|s| s >= 2), "{why}");
        // A later run does the rest.
        bench.fail("");
        ended(&output(bench.bulk(&lives(files), "")).await, 0);
    })
    .await;
}

#[tokio::test]
async fn signal_ends_a_job_that_waits_for_the_end_of_an_outage() {
    let bench = Bench::new().await;
    bench.fail("503");
    let run = piped(bench.bulk(&lives(60), ""));
    bench
        .seen(|seen| seen.by_status.get(&503) >= Some(&12))
        .await;
    sleep(Duration::from_secs(2)).await;
    signal(&run, "-TERM");
    let run = end(run).await;
    ended(&run, 1);
    assert_eq!(bench.report(&run)["ended_by"], "interrupted");
    outages(&run, 1, 0);
}

#[tokio::test]
async fn path_that_fails_alone_ends_as_a_failure_of_its_own() {
    let lists = [
        ("/bad\n/a\n/b\n/c\n", 40, 1),
        ("/a\n/b\n/c\n/bad\n", 40, 1),
        ("/a\n/bad\n/b\n/bad2\n", 40, 2),
        ("/a\n/bad\n/b\n", 1, 1),
    ];
    at_once(lists, |(list, jobs, bad)| async move {
        let bench = Bench::of(|head, _| match path_of(head).starts_with("/bad") {
            true => sized("503 Service Unavailable", "", b""),
            false => sized("200 OK", "", b"ok"),
        })
        .await;
        let run = output(bench.bulk(list, &format!("--jobs {jobs}"))).await;
        ended(&run, 5);
        let report = bench.report(&run);
        assert_eq!(report["failed"], json!({ "unavailable": bad }), "{report}");
        assert!(
            report["unfinished"] == 0 && report["ended_by"].is_null(),
            "{report}"
        );
    })
    .await;
}

#[tokio::test]
#[ignore = "40 s"]
async fn one_worker_loses_no_file_to_an_outage() {
    let bench = Bench::of(|_, nth| match nth {
        2..40 => sized("503 Service Unavailable", "", b""),
        _ => sized("200 OK", "", b"ok"),
    })
    .await;
    ended(
        &output(bench.bulk(&lives(6), "--jobs 1 --wait-outage 5m")).await,
        0,
    );
    assert_eq!(bench.files().len(), 6);
}

#[tokio::test]
#[ignore = "six minutes"]
async fn night_of_600_files_outlasts_two_outages() {
    let bench = Bench::new().await;
    let run = piped(bench.bulk(&lives(600), ""));
    for (complete, seconds) in [(100, 25), (300, 300)] {
        bench.seen(|seen| seen.complete >= complete).await;
        bench.fail("503");
        sleep(Duration::from_secs(seconds)).await;
        bench.fail("");
    }
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(bench.files().len(), 600);
    outages(&run, 2, 2);
    assert!(err(&run).lines().count() <= 24, "one screen: {}", err(&run));
}
