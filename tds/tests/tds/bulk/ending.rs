//! Failures that end `tds bulk` early, and failures that do not. How early is shown in `src/tests.rs`.

use std::time::Duration;

use tds_sim::{Config, Quota, Server};

use super::lives;
use crate::{
    Bench, at_once, end, ended, err, output, path_of, piped, signal, until,
    upstream::{answer, late, sized},
};

/// The most requests of five jobs after the end of a quota. Which of them are on their way at a refusal is chance.
///
/// If a refusal has a `Retry-After`, each job has sent one request by then, and waits. Otherwise the pauses take 1, 2 and 4 s: five
/// calls make their three attempts, and each job begins one more call before its patience of eight seconds is over.
const fn most(is_told: bool) -> u64 {
    if is_told { 5 } else { 5 * 3 + 5 }
}

fn daily(config: &mut Config, calls: u32) {
    config.quota = Some(Quota::new(calls, Duration::from_secs(86_400)));
}

#[tokio::test]
async fn bulk_ends_when_every_token_is_refused() {
    let bench = Bench::new().await;
    // The tokens are of another service.
    let mut config = Config::default();
    config.seed = 7;
    let other = Server::start(config).await.expect("free ports");
    let mut run = bench.bulk(&lives(400), "");
    run.env("TDS_BASE_URL", other.base_url());
    let run = output(run).await;
    ended(&run, 4);
    assert!(bench.files().is_empty(), "{:?}", bench.files());
    let seen = other.ledger().summary();
    assert!(seen.data_calls < 200, "{seen:?}");
    let (posts, _) = bench.asked();
    assert!(
        posts <= 4,
        "each is a token that was refused at once: {posts}"
    );
    assert!(bench.report(&run)["unfinished"].as_u64() > Some(0));
}

#[tokio::test]
async fn missing_role_is_printed_once_and_other_files_arrive() {
    let bench = Bench::with(|config| config.roles = vec!["live".to_owned()]).await;
    let list = format!("/v1/history/{{0..9}}\n{}", lives(20));
    let run = output(bench.bulk(&list, "")).await;
    ended(&run, 1);
    assert_eq!(bench.files().len(), 20, "{:?}", bench.files());
    let report = bench.report(&run);
    assert_eq!(report["failed"]["missing_role"], 10);
    assert_eq!(report["again"][0], "/v1/history/0");
    let told = err(&run);
    assert_eq!(told.matches("lacks the role").count(), 1, "{told}");
    assert_eq!(bench.asked().0, 1);
}

#[tokio::test]
async fn bulk_ends_when_the_quota_is_used_up() {
    at_once([false, true], |is_told| async move {
        let bench = Bench::with(|config| {
            daily(config, 5);
            config.retry_after = is_told;
        })
        .await;
        let run = output(bench.bulk(&lives(400), "--jobs 5")).await;
        ended(&run, 3);
        let report = bench.report(&run);
        // A response that arrives after the end of the job is not written.
        let ok = report["ok"].as_u64();
        assert!(ok.is_some_and(|ok| (1..=5).contains(&ok)), "{report}");
        let (_, calls) = bench.asked();
        assert!(calls <= 5 + most(is_told), "{calls}");
    })
    .await;
}

#[tokio::test]
async fn wait_quota_waits_for_the_quota() {
    let gone = "retry-after: 1\r\nx-ratelimit-remaining-day: 0\r\n";
    for (refused, more, code, files) in [
        (usize::MAX, "", 3, &[][..]),
        (2, "--wait-quota", 0, &["a", "b"]),
    ] {
        let bench = Bench::of(move |_, nth| match nth < refused {
            true => sized("429 Too Many Requests", gone, b""),
            false => sized("200 OK", "", b"ok"),
        })
        .await;
        ended(&output(bench.bulk("/a\n/b\n", more)).await, code);
        assert_eq!(bench.files(), files);
    }
}

#[tokio::test]
async fn unreachable_service_has_its_own_exit_code() {
    let bench = Bench::new().await;
    let more = "--wait-outage 0 --base-url http://127.0.0.1:1";
    let run = output(bench.bulk("/a\n/b\n", more)).await;
    ended(&run, 5);
    assert_eq!(bench.report(&run)["failed"]["connect"], 2);
}

/// Paths of one list that fail alone, each in its own way, beside others that succeed.
#[tokio::test]
async fn exit_code_shows_what_helps_whatever_else_succeeded() {
    let ways = [
        ("/none\n", 1),
        ("/down\n", 5),
        ("/cut\n", 5),
        ("/gone\n", 3),
        ("/none\n/down\n", 5),
        ("/none\n/gone\n", 3),
        ("/down\n/gone\n", 5),
    ];
    at_once(ways, |(bad, code)| async move {
        let bench = Bench::of(|head, _| match path_of(head) {
            "/none" => sized("404 Not Found", "", b""),
            "/down" => sized("503 Service Unavailable", "", b""),
            "/cut" => answer("200 OK", "content-length: 9\r\n", b"12"),
            "/gone" => sized("429 Too Many Requests", "retry-after: 86400\r\n", b""),
            _ => sized("200 OK", "", b"ok"),
        })
        .await;
        // The last of the list, because a used up quota ends the job.
        let run = bench.bulk(&format!("/a\n/b\n{bad}"), "--jobs 1");
        ended(&output(run).await, code);
        assert_eq!(bench.files(), ["a", "b"], "{bad}");
    })
    .await;
}

#[tokio::test]
async fn quota_that_ends_during_the_last_files_has_the_exit_code_of_a_quota() {
    at_once([12, 40], |files| async move {
        let bench = Bench::with(|config| daily(config, 10)).await;
        ended(&output(bench.bulk(&lives(files), "")).await, 3);
    })
    .await;
}

#[tokio::test]
async fn interrupted_run_has_its_own_exit_code_whatever_failed_before() {
    let bench = Bench::of(|head, _| match path_of(head) {
        "/down" => sized("503 Service Unavailable", "", b""),
        _ => late(Vec::new(), 60),
    })
    .await;
    let run = piped(bench.bulk("/down\n/slow\n", "--jobs 1 --wait-outage 0"));
    // With one job the second file is requested once the first has failed.
    until(async || bench.heads().iter().any(|head| path_of(head) == "/slow")).await;
    signal(&run, "-INT");
    ended(&end(run).await, 1);
}

#[tokio::test]
async fn short_429_beside_slow_heads_does_not_end_bulk() {
    let bench = Bench::of(|_, nth| match nth {
        0 => sized("429 Too Many Requests", "retry-after: 1\r\n", b""),
        // The first response after the pause is slower than any patience.
        1 => late(sized("200 OK", "", b"ok"), 9),
        _ => sized("200 OK", "", b"ok"),
    })
    .await;
    let run = output(bench.bulk(&lives(5), "")).await;
    ended(&run, 0);
    assert_eq!(bench.report(&run)["ok"], 5);
    assert_eq!(
        bench.heads().len(),
        6,
        "one was refused, and all were served"
    );
}

#[tokio::test]
async fn refused_token_with_a_late_successor_does_not_end_bulk() {
    let bench = Bench::new().await;
    let run = piped(bench.bulk(&lives(120), ""));
    bench.seen(|seen| seen.complete >= 50).await;
    bench.fail("token=503");
    bench.server.sim().revoke_all();
    let refused = |seen: &tds_sim::Summary| seen.by_status.get(&401) >= Some(&3);
    bench
        .seen(|seen| seen.token_posts >= 2 && refused(seen))
        .await;
    bench.fail("");
    ended(&end(run).await, 0);
    assert_eq!(bench.files().len(), 120);
}
