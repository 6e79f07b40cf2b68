//! Failures that end `tds bulk` early, and failures that do not. How early is shown in `src/tests.rs`.

use std::time::Duration;

use tds_sim::{Config, Quota, Server};
use tokio::time::sleep;

use super::{ended, lives};
use crate::{
    Bench, at_once, end, err, output, piped, signal,
    upstream::{Upstream, answer, late},
};

/// The most requests of five jobs after the end of a quota. Which of them are on their way at a refusal is chance.
///
/// If a refusal tells for how long, each job has sent one request by then, and waits. Otherwise the pauses take 1, 2 and 4 s: five
/// calls make their three attempts, and each job begins one more call before its patience of eight seconds is over.
const fn most(is_told: bool) -> u64 {
    if is_told { 5 } else { 5 * 3 + 5 }
}

#[tokio::test]
async fn bulk_ends_when_every_token_is_refused() {
    let bench = Bench::new("bulk-refused", Config::default()).await;
    // The tokens are of another service.
    let mut config = Config::default();
    config.seed = 7;
    let other = Server::start(config).await.expect("free ports");
    let mut run = bench.bulk(&lives(400), &[]);
    run.env("TDS_BASE_URL", other.base_url());
    let run = output(run).await;
    ended(&run, 4);
    assert!(bench.files().is_empty(), "{:?}", bench.files());
    let seen = other.ledger().summary();
    assert!(seen.data_calls < 200, "{seen:?}");
    let posts = bench.server.ledger().summary().token_posts;
    assert!(
        posts <= 4,
        "each is a token that was refused at once: {posts}"
    );
    assert!(bench.report(&run)["unfinished"].as_u64() > Some(0));
}

#[tokio::test]
async fn missing_role_is_printed_once_and_other_files_arrive() {
    let mut config = Config::default();
    config.roles = vec!["live".to_owned()];
    let bench = Bench::new("bulk-role", config).await;
    let history: String = (0..10).map(|n| format!("/v1/history/{n}\n")).collect();
    let run = output(bench.bulk(&format!("{history}{}", lives(20)), &[])).await;
    ended(&run, 1);
    assert_eq!(bench.files().len(), 20, "{:?}", bench.files());
    let report = bench.report(&run);
    assert_eq!(report["failed"]["missing_role"], 10);
    assert_eq!(report["again"][0], "/v1/history/0");
    assert_eq!(
        err(&run).matches("lacks the role").count(),
        1,
        "{}",
        err(&run)
    );
    assert_eq!(bench.server.ledger().summary().token_posts, 1);
}

#[tokio::test]
async fn bulk_ends_when_the_quota_is_used_up() {
    at_once([false, true], |told| async move {
        let mut config = Config::default();
        config.quota = Some(Quota::new(5, Duration::from_secs(86_400)));
        config.retry_after = told;
        let bench = Bench::new(&format!("bulk-quota-{told:?}"), config).await;
        let run = output(bench.bulk(&lives(400), &["--jobs", "5"])).await;
        ended(&run, 3);
        let report = bench.report(&run);
        // A response that arrives after the end of the job is not written.
        let ok = report["ok"].as_u64();
        assert!(ok.is_some_and(|ok| (1..=5).contains(&ok)), "{report}");
        let seen = bench.server.ledger().summary();
        assert!(seen.data_calls <= 5 + most(told), "{seen:?}");
    })
    .await;
}

#[tokio::test]
async fn wait_quota_waits_for_the_quota() {
    let bench = Bench::new("bulk-wait", Config::default()).await;
    let gone = "retry-after: 1\r\nx-ratelimit-remaining-day: 0\r\ncontent-length: 0\r\n";
    let upstream = Upstream::start(move |_, nth| match nth {
        ..6 => answer("429 Too Many Requests", gone, b""),
        _ => answer("200 OK", "content-length: 2\r\n", b"ok"),
    });
    let mut run = bench.bulk("/a\n/b\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 3);
    let asked = upstream.heads().len();
    assert!(asked < 6, "it ended: {asked}");

    let mut run = bench.bulk("/a\n/b\n", &["--wait-quota"]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    assert_eq!(bench.files(), ["a", "b"]);
}

#[tokio::test]
async fn unreachable_service_has_its_own_exit_code() {
    let bench = Bench::new("bulk-nobody", Config::default()).await;
    let mut run = bench.bulk("/a\n/b\n", &["--wait-outage", "0"]);
    run.env("TDS_BASE_URL", "http://127.0.0.1:1");
    let run = output(run).await;
    ended(&run, 5);
    assert_eq!(bench.report(&run)["failed"]["connect"], 2);
}

/// Paths of one list that fail alone, each in its own way, beside others that succeed.
#[tokio::test]
async fn exit_code_shows_what_helps_whatever_else_succeeded() {
    let short = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\n12";
    let ways = [
        ("/none\n", 1),
        ("/down\n", 5),
        ("/cut\n", 5),
        ("/gone\n", 3),
        ("/none\n/down\n", 5),
        ("/none\n/gone\n", 3),
        ("/down\n/gone\n", 5),
    ];
    at_once(
        ways.into_iter().enumerate(),
        move |(number, (bad, code))| async move {
            let bench = Bench::new(&format!("bulk-cause-{number}"), Config::default()).await;
            let upstream = Upstream::start(move |head, _| {
                let none = "content-length: 0\r\n";
                let path = head.split(' ').nth(1).unwrap_or_default();
                match path {
                    "/none" => answer("404 Not Found", none, b""),
                    "/down" => answer("503 Service Unavailable", none, b""),
                    "/cut" => short.into(),
                    "/gone" => answer(
                        "429 Too Many Requests",
                        "retry-after: 86400\r\ncontent-length: 0\r\n",
                        b"",
                    ),
                    _ => answer("200 OK", "content-length: 2\r\n", b"ok"),
                }
            });
            // The last of the list, because a used up quota ends the job.
            let more = ["--jobs", "1"];
            let mut run = bench.bulk(&format!("/a\n/b\n{bad}"), &more);
            run.env("TDS_BASE_URL", &upstream.url);
            ended(&output(run).await, code);
            assert_eq!(bench.files(), ["a", "b"], "{bad}");
        },
    )
    .await;
}

#[tokio::test]
async fn quota_that_ends_during_the_last_files_has_the_exit_code_of_a_quota() {
    at_once([12, 40], |files| async move {
        let mut config = Config::default();
        config.quota = Some(Quota::new(10, Duration::from_secs(86_400)));
        let bench = Bench::new(&format!("bulk-last-{files}"), config).await;
        let run = output(bench.bulk(&lives(files), &[])).await;
        ended(&run, 3);
    })
    .await;
}

#[tokio::test]
async fn interrupted_run_has_its_own_exit_code_whatever_failed_before() {
    let bench = Bench::new("bulk-int-cause", Config::default()).await;
    let upstream = Upstream::start(|head, _| match head.starts_with("GET /down ") {
        true => answer("503 Service Unavailable", "content-length: 0\r\n", b""),
        false => late(Vec::new(), 60),
    });
    let more = ["--jobs", "1", "--wait-outage", "0"];
    let mut run = bench.bulk("/down\n/slow\n", &more);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = piped(run);
    // With one job the second file is requested once the first has failed.
    let is_slow = |head: &String| head.starts_with("GET /slow ");
    while !upstream.heads().iter().any(is_slow) {
        sleep(Duration::from_millis(5)).await;
    }
    signal(&run, "-INT");
    ended(&end(run).await, 1);
}

#[tokio::test]
async fn short_429_beside_slow_heads_does_not_end_bulk() {
    let bench = Bench::new("bulk-slow-429", Config::default()).await;
    let upstream = Upstream::start(|_, nth| {
        if nth == 0 {
            let headers = "retry-after: 1\r\ncontent-length: 0\r\n";
            return answer("429 Too Many Requests", headers, b"");
        }
        let ok = answer("200 OK", "content-length: 2\r\n", b"ok");
        // The first response after the pause is slower than any patience.
        if nth == 1 { late(ok, 9) } else { ok }
    });
    let mut run = bench.bulk(&lives(5), &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = output(run).await;
    ended(&run, 0);
    assert_eq!(bench.report(&run)["ok"], 5);
    let heads = upstream.heads().len();
    assert_eq!(heads, 6, "one was refused, and all were served");
}

#[tokio::test]
async fn refused_token_with_a_late_successor_does_not_end_bulk() {
    let bench = Bench::new("bulk-late-token", Config::default()).await;
    let run = piped(bench.bulk(&lives(120), &[]));
    bench.seen(|seen| seen.complete >= 50).await;
    let mut faults = tds_sim::Faults::default();
    faults.token.push("503".parse().expect("a fault"));
    let sim = bench.server.sim();
    sim.set_faults(faults);
    sim.revoke_all();
    bench
        .seen(|seen| seen.token_posts >= 2 && seen.by_status.get(&401) >= Some(&3))
        .await;
    sim.set_faults(tds_sim::Faults::default());
    ended(&end(run).await, 0);
    assert_eq!(bench.files().len(), 120);
}
