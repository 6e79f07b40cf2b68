//! `tds poll`: changes, one line for the start of an outage and one for its end, and the end of the job.

mod rounds;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use tds_sim::{Arrival, Quota};
use tokio::{
    sync::mpsc,
    time::{Duration, sleep, timeout},
};

use crate::{
    Bench, end, ended, err, live, out, output, path_of, piped, says, signal, until,
    upstream::{answer, sized},
};

const THREE: &str = "/v1/live/bus\n/v1/live/metro\tm.json\n/v1/live/rail\n";

#[tokio::test]
async fn each_feed_is_requested_in_each_round() {
    let bench = Bench::new().await;
    let run = output(bench.poll(THREE, "--every 200ms --rounds 4")).await;
    ended(&run, 0);
    let changes = out(&run).matches("/v1/live/rail\t128\n").count();
    assert_eq!(changes, 1, "it never changes: {}", out(&run));
    assert_eq!(bench.file("m.json"), live("metro").as_bytes());
    assert_eq!(bench.asked(), (1, 12));
    let statuses = [(200, 3), (304, 9)].into();
    assert_eq!(
        bench.summary().by_status,
        statuses,
        "known data are not sent again"
    );
}

/// Polls while these faults last, which is until the service has seen so many calls.
async fn outage(faults: &str, calls: u64) {
    let bench = Bench::new().await;
    let run = piped(bench.poll(THREE, "--every 300ms"));
    bench.seen(|seen| seen.complete >= 6).await;
    bench.fail(faults);
    let (_, begun) = bench.asked();
    bench.seen(|seen| seen.data_calls >= begun + calls).await;
    bench.fail("");
    let before = bench.server.ledger().arrivals().len();
    let is_back = |feed: &&str| {
        let arrivals = bench.server.ledger().arrivals();
        let good = |of: &&Arrival| of.target.ends_with(feed) && of.status == Some(304);
        arrivals.iter().skip(before).filter(good).count() >= 3
    };
    bench
        .seen(|_| ["bus", "metro", "rail"].iter().all(is_back))
        .await;
    signal(&run, "-TERM");
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(err(&run).matches("outage: ").count(), 1, "{}", err(&run));
    assert_eq!(err(&run).matches("outage over").count(), 1, "{}", err(&run));
    for (name, resource) in [
        ("v1_live_bus", "bus"),
        ("m.json", "metro"),
        ("v1_live_rail", "rail"),
    ] {
        assert_eq!(bench.file(name), live(resource).as_bytes());
    }
}

#[tokio::test]
async fn outage_of_all_feeds_prints_its_start_and_end() {
    // More than three attempts for each of the three feeds.
    outage("503 reset-head@0.5", 24).await;
}

#[tokio::test]
#[ignore = "20 s"]
async fn a_service_that_never_answers_is_an_outage() {
    // One of three feeds has been given up, by its deadline of ten seconds, and was requested
    // again.
    outage("head=3600s", 4).await;
}

#[tokio::test]
async fn outage_ends_with_the_last_feed() {
    let (slow, quick) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Each feed is refused for a while, one for longer than the other, by a response that is not retried.
    let bench = Bench::of(move |head, _| {
        let is_slow = path_of(head) == "/slow";
        let (asked, rounds) = if is_slow { (&slow, 5) } else { (&quick, 2) };
        match asked.fetch_add(1, Ordering::Relaxed) < rounds {
            // Waits longer than the deadline of a request.
            true => sized("503 Service Unavailable", "retry-after: 3600\r\n", b""),
            false => sized("200 OK", "", b"ok"),
        }
    })
    .await;
    let run = piped(bench.poll("/slow\n/quick\n", "--every 50ms"));
    // After five refusals the sixth response ends the outage, before the seventh request.
    let is_over = async || {
        let heads = bench.heads();
        heads.iter().filter(|head| path_of(head) == "/slow").count() >= 7
    };
    until(is_over).await;
    signal(&run, "-TERM");
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(err(&run).matches("outage: ").count(), 1, "{}", err(&run));
    assert_eq!(err(&run).matches("outage over").count(), 1, "{}", err(&run));
    says(&run, "7 failures: /slow is back");
}

#[tokio::test]
async fn missing_feed_delays_no_other() {
    let bench = Bench::new().await;
    let list = format!("/nothing\n{THREE}");
    let run = output(bench.poll(&list, "--every 50ms --rounds 3")).await;
    ended(&run, 1);
    assert_eq!(err(&run).matches("outage: ").count(), 1, "{}", err(&run));
    assert_eq!(out(&run).lines().count(), 3);
    let seen = bench.summary();
    assert_eq!((seen.by_status[&200], seen.by_status[&304]), (3, 6));
}

#[tokio::test]
async fn poll_ends_when_it_cannot_succeed() {
    let bench = Bench::new().await;
    let mut wrong = bench.poll(THREE, "--every 100ms");
    wrong.env("TDS_CLIENT_SECRET", "wrong");
    ended(&output(wrong).await, 4);
    assert_eq!(bench.asked().0, 1);
}

#[tokio::test]
#[ignore = "10 s"]
async fn poll_ends_when_the_quota_is_used_up() {
    let bench = Bench::new().await;
    let sim = bench.server.sim();
    sim.set_quota(Some(Quota::new(0, Duration::from_secs(86_400))));
    ended(&output(bench.poll(THREE, "--every 100ms")).await, 3);
    assert!(bench.asked().1 < 20);
}

#[tokio::test]
async fn rounds_without_data_end_with_their_failure() {
    let bench = Bench::new().await;
    let once = "--every 50ms --rounds 1";
    let nobody = format!("{once} --base-url http://127.0.0.1:1");
    ended(&output(bench.poll(THREE, &nobody)).await, 5);

    let sim = bench.server.sim();
    let roles = sim.set_roles(bench.server.client_id(), ["history"]);
    roles.expect("its key");
    sim.revoke_all();
    ended(&output(bench.poll(THREE, once)).await, 4);

    // A response of only one feed makes it a job of which some failed.
    let some = "/v1/live/bus\n/v1/history/1?bytes=10\n";
    ended(&output(bench.poll(some, once)).await, 1);
}

#[tokio::test]
async fn unusable_arguments_are_refused() {
    let bench = Bench::new().await;
    for (lines, more, told) in [
        ("/a\n", "--every 15", "500ms"),
        ("/a\n", "--every 0s", "above 0"),
        ("/a\n", "--rounds 0", "rounds"),
        ("/a\t../x\n", "", "leaves the folder"),
        ("", "", "no line"),
    ] {
        let run = output(bench.poll(lines, more)).await;
        ended(&run, 2);
        says(&run, told);
    }
    bench.ends(2, "poll").await;
    assert_eq!(bench.asked(), (0, 0));
}

#[tokio::test]
async fn feed_that_always_fails_hides_no_outage_of_the_others() {
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let bench = Bench::of(move |head, _| {
        match path_of(head) == "/bad" || is_down.load(Ordering::Relaxed) {
            true => sized("503 Service Unavailable", "", b""),
            false => sized("200 OK", "", b"ok"),
        }
    })
    .await;
    let mut run = piped(bench.poll("/bad\n/a\n/b\n/c\n", "--every 100ms"));
    let mut lines = BufReader::new(run.stderr.take().expect("it is piped")).lines();
    let (sender, mut told) = mpsc::unbounded_channel();
    thread::spawn(move || lines.try_for_each(|line| sender.send(line.expect("text"))));
    let mut next = async || {
        let line = timeout(Duration::from_secs(30), told.recv()).await;
        line.expect("a line is told").expect("it runs")
    };
    let came = async |rounds: usize| {
        let count = || {
            let heads = bench.heads();
            heads.iter().filter(|head| path_of(head) != "/bad").count()
        };
        let enough = count() + 3 * rounds;
        until(async || count() >= enough).await;
    };
    let begins = next().await;
    assert!(
        begins.contains("outage: ") && begins.contains("/bad"),
        "{begins}"
    );
    came(4).await;
    for _ in 0..2 {
        down.store(true, Ordering::Relaxed);
        let begins = next().await;
        assert!(
            begins.contains("outage: ") && !begins.contains("/bad"),
            "{begins}"
        );
        came(6).await;
        down.store(false, Ordering::Relaxed);
        let ends = next().await;
        assert!(ends.contains("outage over"), "{ends}");
        came(4).await;
    }
    signal(&run, "-TERM");
    assert_eq!(run.wait().expect("it ends").code(), Some(0));
    assert_eq!(told.recv().await, None, "and nothing else");
}

#[tokio::test]
async fn removed_file_is_written_again() {
    let bench = Bench::of(|head, _| match head.contains("if-none-match: ") {
        true => answer("304 Not Modified", "etag: \"v1\"\r\n", b""),
        false => sized("200 OK", "etag: \"v1\"\r\n", b"ok"),
    })
    .await;
    let run = piped(bench.poll("/bus\n", "--every 50ms"));
    let file = bench.path("files/bus");
    until(async || file.exists()).await;
    fs::remove_file(&file).expect("it is there");
    until(async || file.exists()).await;
    fs::remove_dir_all(bench.path("files")).expect("it is there");
    until(async || file.exists()).await;
    signal(&run, "-TERM");
    ended(&end(run).await, 0);
}

#[tokio::test]
async fn equal_bytes_without_etag_are_no_change() {
    let bench = Bench::of(|_, nth| sized("200 OK", "", if nth < 3 { b"1" } else { b"22" })).await;
    let run = piped(bench.poll("/bus\n", "--every 300ms --rounds 6"));
    let file = bench.path("files/bus");
    let mut files = BTreeSet::new();
    while bench.heads().len() < 6 {
        files.extend(fs::metadata(&file).map(|file| (file.ino(), file.mtime_nsec())));
        sleep(Duration::from_millis(5)).await;
    }
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(out(&run), "/bus\t1\n/bus\t2\n");
    assert_eq!(files.len(), 2, "it is written when it changes");
}

#[tokio::test]
async fn closed_pipe_ends_poll_without_an_error() {
    let bench = Bench::of(|_, nth| sized("200 OK", "", nth.to_string().as_bytes())).await;
    let mut run = piped(bench.poll("/bus\n", "--every 50ms --rounds 200"));
    drop(run.stdout.take());
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(err(&run), "");
    assert!(bench.heads().len() < 100);
}

#[tokio::test]
#[ignore = "13 s"]
async fn feeds_take_turns_if_a_round_is_too_short() {
    let bench = Bench::new().await;
    let run = output(bench.poll("/v1/live/{0..599}\n", "--every 1s --rounds 1")).await;
    // At fifty a second they take longer than the ten seconds of a call.
    ended(&run, 0);
    assert_eq!(out(&run).lines().count(), 600);
    assert_eq!(bench.summary().by_status, [(200, 600)].into());
}
