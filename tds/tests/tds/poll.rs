//! `tds poll`: changes, one line for the start of an outage and one for its end, and the end of the job.

mod rounds;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use tds_sim::{Arrival, Config, Faults, Quota, Summary};
use tokio::{
    sync::mpsc,
    time::{Duration, sleep, timeout},
};

use crate::{
    Bench, HANGS, end, err, live, out, output, piped, signal, tds, text,
    upstream::{Upstream, answer},
};

impl Bench {
    fn poll(&self, lines: &str, more: &[&str]) -> std::process::Command {
        fs::write(self.path("feeds"), lines).expect("a file");
        let (list, files) = (self.path("feeds"), self.path("files"));
        let mut arguments = vec!["poll", "--list", text(&list), "--out", text(&files)];
        arguments.extend(more);
        self.tds(&arguments)
    }
}

fn lines(run: &Output, with: &str) -> usize {
    err(run).lines().filter(|line| line.contains(with)).count()
}

const THREE: &str = "/v1/live/bus\n/v1/live/metro\tm.json\n/v1/live/rail\n";

#[tokio::test]
async fn each_feed_is_requested_in_each_round() {
    let bench = Bench::new("poll-rounds", Config::default()).await;
    let run = output(bench.poll(THREE, &["--every", "200ms", "--rounds", "4"])).await;
    assert!(run.status.success(), "{}", err(&run));
    let changes = out(&run).matches("/v1/live/rail\t128\n").count();
    assert_eq!(changes, 1, "it never changes: {}", out(&run));
    let metro = fs::read_to_string(bench.path("files").join("m.json"));
    assert_eq!(metro.expect("it is whole"), live("metro"));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 12));
    let statuses = [200, 304].map(|status| seen.by_status.get(&status));
    assert_eq!(
        statuses,
        [Some(&3), Some(&9)],
        "known data are not sent again"
    );
}

/// Polls while these faults last, until the service has seen `enough` since they began.
async fn outage(name: &str, faults: Faults, enough: impl Fn(&Summary, &Summary) -> bool) {
    let bench = Bench::new(name, Config::default()).await;
    let run = piped(bench.poll(THREE, &["--every", "300ms"]));
    bench.seen(|seen| seen.complete >= 6).await;
    let sim = bench.server.sim();
    sim.set_faults(faults);
    let begun = bench.server.ledger().summary();
    bench.seen(|seen| enough(&begun, seen)).await;
    sim.set_faults(Faults::default());
    let before = bench.server.ledger().arrivals().len();
    let is_back = |feed: &str| {
        let arrivals = bench.server.ledger().arrivals();
        let good = |of: &&Arrival| of.target.ends_with(feed) && of.status == Some(304);
        arrivals.iter().skip(before).filter(good).count() >= 3
    };
    bench
        .seen(|_| ["bus", "metro", "rail"].into_iter().all(is_back))
        .await;
    signal(&run, "-TERM");
    let run = end(run).await;
    assert!(run.status.success(), "{}", err(&run));
    assert_eq!(lines(&run, "outage: "), 1, "{}", err(&run));
    assert_eq!(lines(&run, "outage over"), 1, "{}", err(&run));
    for (name, resource) in [
        ("v1_live_bus", "bus"),
        ("m.json", "metro"),
        ("v1_live_rail", "rail"),
    ] {
        let file = fs::read_to_string(bench.path("files").join(name));
        assert_eq!(file.expect("it is whole"), live(resource));
    }
}

#[tokio::test]
async fn outage_of_all_feeds_prints_its_start_and_end() {
    let mut faults = Faults::default();
    faults.data.push("503".parse().expect("a fault"));
    faults.data.push("reset-head@0.5".parse().expect("a fault"));
    // More than three attempts for each of the three feeds.
    let enough = |begun: &Summary, seen: &Summary| seen.data_calls >= begun.data_calls + 24;
    outage("poll-outage", faults, enough).await;
}

#[tokio::test]
#[ignore = "20 s"]
async fn a_service_that_never_answers_is_an_outage() {
    let mut faults = Faults::default();
    faults.before_head = "3600s".parse().expect("a delay");
    // One of three feeds has been given up, by its deadline of ten seconds, and was requested
    // again.
    let enough = |begun: &Summary, seen: &Summary| seen.data_calls >= begun.data_calls + 4;
    outage("poll-hole", faults, enough).await;
}

#[tokio::test]
async fn outage_ends_with_the_last_feed() {
    let bench = Bench::new("poll-last", Config::default()).await;
    let (slow, quick) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Each feed is refused for a while, one for longer than the other, by a response that is not retried.
    let upstream = Upstream::start(move |head, _| {
        let is_slow = head.starts_with("GET /slow ");
        let (asked, rounds) = if is_slow { (&slow, 5) } else { (&quick, 2) };
        if asked.fetch_add(1, Ordering::Relaxed) < rounds {
            // Waits longer than the deadline of a request.
            let headers = "retry-after: 3600\r\ncontent-length: 0\r\n";
            return answer("503 Service Unavailable", headers, b"");
        }
        answer("200 OK", "content-length: 2\r\n", b"ok")
    });
    let mut run = bench.poll("/slow\n/quick\n", &["--every", "50ms"]);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = piped(run);
    let slow = || {
        let heads = upstream.heads();
        heads.iter().filter(|head| head.contains("/slow")).count()
    };
    let served = async {
        // After five refusals the sixth response ends the outage, before the seventh request.
        while slow() < 7 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANGS, served).await.expect("it goes on");
    signal(&run, "-TERM");
    let run = end(run).await;
    assert!(run.status.success(), "{}", err(&run));
    assert_eq!(lines(&run, "outage: "), 1, "{}", err(&run));
    assert_eq!(lines(&run, "outage over"), 1, "{}", err(&run));
    assert!(
        err(&run).contains("7 failures: /slow is back"),
        "{}",
        err(&run)
    );
}

#[tokio::test]
async fn missing_feed_delays_no_other() {
    let bench = Bench::new("poll-404", Config::default()).await;
    let list = format!("/nothing\n{THREE}");
    let run = output(bench.poll(&list, &["--every", "50ms", "--rounds", "3"])).await;
    assert_eq!(run.status.code(), Some(1), "{}", err(&run));
    assert_eq!(lines(&run, "outage: "), 1, "{}", err(&run));
    assert_eq!(out(&run).lines().count(), 3);
    let seen = bench.server.ledger().summary();
    let statuses = [200, 304].map(|status| seen.by_status.get(&status));
    assert_eq!(statuses, [Some(&3), Some(&6)]);
}

#[tokio::test]
async fn poll_ends_when_it_cannot_succeed() {
    let bench = Bench::new("poll-end", Config::default()).await;
    let mut wrong = bench.poll(THREE, &["--every", "100ms"]);
    wrong.env("TDS_CLIENT_SECRET", "wrong");
    let wrong = output(wrong).await;
    assert_eq!(wrong.status.code(), Some(4), "{}", err(&wrong));
    assert_eq!(bench.server.ledger().summary().token_posts, 1);
}

#[tokio::test]
#[ignore = "10 s"]
async fn poll_ends_when_the_quota_is_used_up() {
    let bench = Bench::new("poll-quota", Config::default()).await;
    let sim = bench.server.sim();
    sim.set_quota(Some(Quota::new(0, Duration::from_secs(86_400))));
    let quota = output(bench.poll(THREE, &["--every", "100ms"])).await;
    assert_eq!(quota.status.code(), Some(3), "{}", err(&quota));
    assert!(bench.server.ledger().summary().data_calls < 20);
}

#[tokio::test]
async fn rounds_without_data_end_with_their_failure() {
    let bench = Bench::new("poll-nothing", Config::default()).await;
    let mut nobody = bench.poll(THREE, &["--every", "50ms", "--rounds", "1"]);
    nobody.env("TDS_BASE_URL", "http://127.0.0.1:1");
    let nobody = output(nobody).await;
    assert_eq!(nobody.status.code(), Some(5), "{}", err(&nobody));

    let sim = bench.server.sim();
    sim.set_roles(bench.server.client_id(), ["history"])
        .expect("its key");
    sim.revoke_all();
    let role = output(bench.poll(THREE, &["--every", "50ms", "--rounds", "1"])).await;
    assert_eq!(role.status.code(), Some(4), "{}", err(&role));

    // A response of only one feed makes it a job of which some failed.
    let some = "/v1/live/bus\n/v1/history/1?bytes=10\n";
    let some = output(bench.poll(some, &["--every", "50ms", "--rounds", "1"])).await;
    assert_eq!(some.status.code(), Some(1), "{}", err(&some));
}

#[tokio::test]
async fn unusable_arguments_are_refused() {
    let bench = Bench::new("poll-usage", Config::default()).await;
    for (lines, more, told) in [
        ("/a\n", &["--every", "15"][..], "500ms"),
        ("/a\n", &["--every", "0s"], "above 0"),
        ("/a\n", &["--rounds", "0"], "rounds"),
        ("/a\t../x\n", &[], "leaves the folder"),
        ("", &[], "no line"),
    ] {
        let run = output(bench.poll(lines, more)).await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
        assert!(err(&run).contains(told), "{}", err(&run));
    }
    let none = output(tds(&["poll"])).await;
    assert_eq!(none.status.code(), Some(2));
    assert_eq!(bench.server.ledger().summary().data_calls, 0);
}

#[tokio::test]
async fn feed_that_always_fails_hides_no_outage_of_the_others() {
    let bench = Bench::new("poll-bad", Config::default()).await;
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let upstream = Upstream::start(move |head, _| {
        if head.starts_with("GET /bad ") || is_down.load(Ordering::Relaxed) {
            return answer("503 Service Unavailable", "content-length: 0\r\n", b"");
        }
        answer("200 OK", "content-length: 2\r\n", b"ok")
    });
    let mut run = bench.poll("/bad\n/a\n/b\n/c\n", &["--every", "100ms"]);
    run.env("TDS_BASE_URL", &upstream.url);
    let mut run = piped(run);
    let mut lines = BufReader::new(run.stderr.take().expect("it is piped")).lines();
    let (sender, mut told) = mpsc::unbounded_channel();
    thread::spawn(move || lines.try_for_each(|line| sender.send(line.expect("text"))));
    let mut next = async || {
        let line = timeout(Duration::from_secs(30), told.recv()).await;
        line.expect("a line is told").expect("it runs")
    };
    let came = async |rounds: usize| {
        let count = || {
            let heads = upstream.heads();
            heads.iter().filter(|head| !head.contains("/bad")).count()
        };
        let enough = count() + 3 * rounds;
        while count() < enough {
            sleep(Duration::from_millis(5)).await;
        }
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
    let bench = Bench::new("poll-removed", Config::default()).await;
    let upstream = Upstream::start(|head, _| {
        if head.contains("if-none-match: ") {
            return answer("304 Not Modified", "etag: \"v1\"\r\n", b"");
        }
        answer("200 OK", "etag: \"v1\"\r\ncontent-length: 2\r\n", b"ok")
    });
    let mut run = bench.poll("/bus\n", &["--every", "50ms"]);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = piped(run);
    let file = bench.path("files").join("bus");
    let there = async || {
        let waited = async {
            while !file.exists() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let there = timeout(Duration::from_secs(20), waited).await;
        there.expect("the file is there");
    };
    there().await;
    fs::remove_file(&file).expect("it is there");
    there().await;
    fs::remove_dir_all(bench.path("files")).expect("it is there");
    there().await;
    signal(&run, "-TERM");
    assert!(end(run).await.status.success());
}

#[tokio::test]
async fn equal_bytes_without_etag_are_no_change() {
    use std::os::unix::fs::MetadataExt as _;

    let bench = Bench::new("poll-same", Config::default()).await;
    let upstream = Upstream::start(|_, nth| {
        let body: &[u8] = if nth < 3 { b"1" } else { b"22" };
        let headers = format!("content-length: {}\r\n", body.len());
        answer("200 OK", &headers, body)
    });
    let mut run = bench.poll("/bus\n", &["--every", "300ms", "--rounds", "6"]);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = piped(run);
    let file = bench.path("files").join("bus");
    let mut files = std::collections::BTreeSet::new();
    while upstream.heads().len() < 6 {
        files.extend(fs::metadata(&file).map(|file| (file.ino(), file.mtime_nsec())));
        sleep(Duration::from_millis(5)).await;
    }
    let run = end(run).await;
    assert!(run.status.success(), "{}", err(&run));
    assert_eq!(out(&run), "/bus\t1\n/bus\t2\n");
    assert_eq!(files.len(), 2, "it is written when it changes");
}

#[tokio::test]
async fn closed_pipe_ends_poll_without_an_error() {
    let bench = Bench::new("poll-gone", Config::default()).await;
    let upstream = Upstream::start(|_, nth| {
        let body = nth.to_string();
        let headers = format!("content-length: {}\r\n", body.len());
        answer("200 OK", &headers, body.as_bytes())
    });
    let mut run = bench.poll("/bus\n", &["--every", "50ms", "--rounds", "200"]);
    run.env("TDS_BASE_URL", &upstream.url);
    let mut run = piped(run);
    drop(run.stdout.take());
    let run = end(run).await;
    assert_eq!((run.status.code(), &*err(&run)), (Some(0), ""));
    assert!(upstream.heads().len() < 100);
}

#[tokio::test]
#[ignore = "13 s"]
async fn feeds_take_turns_if_a_round_is_too_short() {
    let bench = Bench::new("poll-long", Config::default()).await;
    let lines: String = (0..600).map(|n| format!("/v1/live/{n}\n")).collect();
    let run = output(bench.poll(&lines, &["--every", "1s", "--rounds", "1"])).await;
    // At fifty a second they take longer than the ten seconds of a call.
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    assert_eq!(out(&run).lines().count(), 600);
    let seen = bench.server.ledger().summary();
    assert_eq!(seen.by_status, [(200, 600)].into());
}
