//! The times of requests, and the state that an end in the middle of a response leaves.

use std::collections::BTreeMap;

use tokio::time::{Duration, timeout};

use crate::{Bench, at_once, end, ended, err, output, piped, signal};

#[tokio::test]
async fn a_late_feed_is_not_requested_twice_and_skips_rounds() {
    let bench = Bench::new().await;
    bench.fail("head=1s");
    let run = piped(bench.poll("/v1/live/bus\n/v1/live/rail\n", "--every 400ms"));
    bench.seen(|seen| seen.complete >= 4).await;
    bench.fail("");
    bench.seen(|seen| seen.complete >= 20).await;
    signal(&run, "-TERM");
    ended(&end(run).await, 0);
    let mut feeds = BTreeMap::<_, Vec<_>>::new();
    for arrival in bench.server.ledger().arrivals() {
        let feed = feeds.entry(arrival.target.clone()).or_default();
        feed.push((arrival.at, arrival.ended));
    }
    assert_eq!(feeds.len(), 2);
    for (feed, calls) in feeds {
        assert!(calls.len() >= 8, "{feed}: {calls:?}");
        // Each round takes its interval, or its request if that is longer; a burst would take less. How late a request
        // arrives is up to the machine.
        let mut earliest = Duration::ZERO;
        for pair in calls.windows(2) {
            let ((began, ended), (next, _)) = (pair[0], pair[1]);
            let took = ended.map_or(Duration::MAX, |ended| ended - began);
            earliest += took.max(Duration::from_millis(400));
            assert!(next >= earliest, "{feed}: {calls:?}");
            assert!(Some(next) >= ended, "{feed}: {calls:?}");
        }
    }
}

#[tokio::test]
async fn interrupt_during_a_response_leaves_the_old_file() {
    at_once(["-INT", "-TERM", "-HUP"], |sent| async move {
        let bench = Bench::new().await;
        bench.write("files/day", "of yesterday");
        // The whole response would take a quarter of an hour.
        let list = "/v1/history/1?bytes=10000000&rate=10000\tday\n";
        let run = piped(bench.poll(list, "--every 1h"));
        let is_begun = |seen: &tds_sim::Summary| seen.by_status.get(&200) == Some(&1);
        bench.seen(is_begun).await;
        signal(&run, sent);
        let run = timeout(Duration::from_secs(10), end(run))
            .await
            .expect("at once");
        ended(&run, 0);
        assert_eq!(bench.file("day"), b"of yesterday");
        assert_eq!(bench.files(), ["day"], "{sent}");
        bench.seen(|seen| seen.aborted == 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_feed_that_fails_is_requested_less_often_and_the_others_are_not() {
    let bench = Bench::new().await;
    let run = piped(bench.poll("/v1/live/bus\n/nothing\n", "--every 100ms"));
    bench
        .seen(|seen| seen.by_status.get(&304) >= Some(&30))
        .await;
    signal(&run, "-TERM");
    let run = end(run).await;
    ended(&run, 0);
    let seen = bench.summary();
    // The failing feed is requested after 0, 100, 300, 700, 1,500 and 3,100 ms.
    let failed = seen.by_status[&404];
    assert!((2..=seen.by_status[&304] / 3).contains(&failed), "{seen:?}");
    assert_eq!(err(&run).matches("outage: ").count(), 1, "{}", err(&run));
}

#[tokio::test]
async fn feed_without_its_role_is_requested_once() {
    let bench = Bench::with(|config| config.roles = vec!["live".to_owned()]).await;
    let run = piped(bench.poll("/v1/live/bus\n/v1/history/a\n", "--every 50ms"));
    bench
        .seen(|seen| seen.by_status.get(&304) >= Some(&10))
        .await;
    signal(&run, "-TERM");
    ended(&end(run).await, 0);
    assert_eq!(bench.summary().by_status[&401], 1);
    let run = output(bench.poll("/v1/history/a\n/v1/history/b\n", "--every 50ms")).await;
    ended(&run, 4);
    assert_eq!(bench.summary().by_status[&401], 3);
}

#[tokio::test]
async fn a_feed_that_fails_does_not_prolong_the_rounds() {
    at_once(["503", "reset-head", ""], |faults| async move {
        let bench = Bench::new().await;
        bench.fail(faults);
        let feeds = "/nothing\n/v1/live/bus\n";
        drop(output(bench.poll(feeds, "--every 200ms --rounds 20")).await);
        let arrivals = bench.server.ledger().arrivals();
        let failed = arrivals.iter().filter(|it| it.target.ends_with("nothing"));
        let failed: Vec<_> = failed.map(|it| it.at).collect();
        // The last round begins after 3.8 s, and no round waits for the three attempts of its call, which would make sixty.
        let last = failed[failed.len() - 1];
        assert!(last >= Duration::from_millis(3_800), "{faults}: {last:?}");
        assert!(failed.len() < 10 * 3, "{faults}: {failed:?}");
    })
    .await;
}
