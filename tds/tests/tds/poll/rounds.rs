//! The times of requests, and the state that an end in the middle of a response leaves.

use std::{collections::BTreeMap, fs};

use tds_sim::{Config, Faults};
use tokio::time::{Duration, timeout};

use crate::{Bench, at_once, end, err, output, piped, signal};

#[tokio::test]
async fn a_late_feed_is_not_requested_twice_and_skips_rounds() {
    let mut config = Config::default();
    config.faults.before_head = "1s".parse().expect("a delay");
    let bench = Bench::new("poll-late", config).await;
    let list = "/v1/live/bus\n/v1/live/rail\n";
    let run = piped(bench.poll(list, &["--every", "400ms"]));
    bench.seen(|seen| seen.complete >= 4).await;
    bench.server.sim().set_faults(Faults::default());
    bench.seen(|seen| seen.complete >= 20).await;
    signal(&run, "-TERM");
    let run = end(run).await;
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    let mut feeds = BTreeMap::<_, Vec<_>>::new();
    for arrival in bench.server.ledger().arrivals() {
        let feed = feeds.entry(arrival.target.clone()).or_default();
        feed.push((arrival.at, arrival.ended));
    }
    assert_eq!(feeds.len(), 2);
    for (feed, calls) in feeds {
        assert!(calls.len() >= 8, "{feed}: {calls:?}");
        for pair in calls.windows(2) {
            let ((began, ended), (next, _)) = (pair[0], pair[1]);
            assert!(
                ended.is_some_and(|ended| ended <= next),
                "{feed}: {calls:?}"
            );
            // A burst would come at once. Half of the interval is room for a busy machine.
            assert!(
                next - began >= Duration::from_millis(200),
                "{feed}: {calls:?}"
            );
        }
    }
}

#[tokio::test]
async fn interrupt_during_a_response_leaves_the_old_file() {
    at_once(["-INT", "-TERM", "-HUP"], |sent| async move {
        let bench = Bench::new(&format!("poll-middle{sent}"), Config::default()).await;
        let file = bench.path("files/day");
        fs::create_dir_all(bench.path("files")).expect("a folder");
        fs::write(&file, "of yesterday").expect("a file");
        // The whole response would take a quarter of an hour.
        let list = "/v1/history/1?bytes=10000000&rate=10000\tday\n";
        let run = piped(bench.poll(list, &["--every", "1h"]));
        let before = bench.server.ledger().summary().aborted;
        bench
            .seen(|seen| {
                seen.in_progress == 1 && seen.by_status.get(&200).copied() == Some(before + 1)
            })
            .await;
        signal(&run, sent);
        let ended = timeout(Duration::from_secs(10), end(run)).await;
        let run = ended.expect("at once");
        assert_eq!(run.status.code(), Some(0), "{sent}: {}", err(&run));
        assert_eq!(fs::read(&file).expect("it is there"), b"of yesterday");
        let left = fs::read_dir(bench.path("files")).expect("it is there");
        let left = left.map(|file| file.expect("a file").file_name().into_string());
        let left: Vec<_> = left.map(|name| name.expect("text")).collect();
        assert!(!left.iter().any(|name| name.ends_with(".part")), "{left:?}");
        bench.seen(|seen| seen.aborted == before + 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_feed_that_fails_is_requested_less_often_and_the_others_are_not() {
    let bench = Bench::new("poll-backoff", Config::default()).await;
    let run = piped(bench.poll("/v1/live/bus\n/nothing\n", &["--every", "100ms"]));
    bench
        .seen(|seen| seen.by_status.get(&304) >= Some(&30))
        .await;
    signal(&run, "-TERM");
    let run = end(run).await;
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    let seen = bench.server.ledger().summary();
    // The failing feed is requested after 0, 100, 300, 700, 1,500 and 3,100 ms.
    let failed = seen.by_status[&404];
    assert!((2..=seen.by_status[&304] / 3).contains(&failed), "{seen:?}");
    assert_eq!(err(&run).matches("outage: ").count(), 1, "{}", err(&run));
}

#[tokio::test]
async fn feed_without_its_role_is_requested_once() {
    let mut config = Config::default();
    config.roles = vec!["live".to_owned()];
    let bench = Bench::new("poll-role", config).await;
    let run = piped(bench.poll("/v1/live/bus\n/v1/history/a\n", &["--every", "50ms"]));
    bench
        .seen(|seen| seen.by_status.get(&304) >= Some(&10))
        .await;
    signal(&run, "-TERM");
    let run = end(run).await;
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    assert_eq!(bench.server.ledger().summary().by_status[&401], 1);
    let run = output(bench.poll("/v1/history/a\n/v1/history/b\n", &["--every", "50ms"])).await;
    assert_eq!(run.status.code(), Some(4), "{}", err(&run));
    assert_eq!(bench.server.ledger().summary().by_status[&401], 3);
}

#[tokio::test]
async fn a_feed_that_fails_does_not_prolong_the_rounds() {
    at_once(["503", "reset-head", "404"], |way| async move {
        let bench = Bench::new(&format!("poll-prolong-{way}"), Config::default()).await;
        let mut faults = Faults::default();
        if way != "404" {
            faults.data.push(way.parse().expect("a fault"));
        }
        bench.server.sim().set_faults(faults);
        let feeds = "/nothing\n/v1/live/bus\n";
        let more = ["--every", "200ms", "--rounds", "20"];
        drop(output(bench.poll(feeds, &more)).await);
        let arrivals = bench.server.ledger().arrivals();
        let failed = arrivals.iter().filter(|it| it.target.ends_with("nothing"));
        let failed: Vec<_> = failed.map(|it| it.at).collect();
        let lasted = failed[failed.len() - 1] - failed[0];
        // The last round begins after 3.8 s. Each call has three attempts.
        let rounds = Duration::from_millis(3_600)..Duration::from_secs(8);
        assert!(rounds.contains(&lasted), "{way}: {lasted:?}");
        assert!(failed.len() < 10 * 3, "{way}: {failed:?}");
    })
    .await;
}
