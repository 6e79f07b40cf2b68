//! `tds backend`: one call for many users, and an answer soon or not at all.

use std::{fs, sync::Arc};

use tds_sim::{Config, Faults, Quota};
use tokio::{
    task::JoinSet,
    time::{Duration, sleep, timeout},
};

use crate::{
    Bench, HANGS, at_once, err, live, output,
    serving::Serving,
    signal, text,
    upstream::{Upstream, answer},
};

impl Bench {
    fn backend(&self, more: &[&str]) -> std::process::Command {
        let list = self.path("resources");
        fs::write(&list, "/v1/live/bus?$top=5\n/v1/live/metro\n/nothing\n").expect("a file");
        let mut arguments = vec!["backend", "--list", text(&list), "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        self.tds(&arguments)
    }
}

fn faults(fault: &str) -> Faults {
    let mut faults = Faults::default();
    faults.data.push(fault.parse().expect("a fault"));
    faults
}

#[tokio::test]
async fn two_hundred_users_are_one_call_also_if_half_of_them_hang_up() {
    let mut config = Config::default();
    config.faults.before_head = "200ms".parse().expect("a delay");
    let bench = Bench::new("backend-users", config).await;
    let backend = Arc::new(Serving::start(bench.backend(&[
        "--fresh",
        "1h",
        "--deadline",
        "1m",
    ])));
    let mut users = JoinSet::new();
    for n in 0..200 {
        let backend = Arc::clone(&backend);
        users.spawn(async move {
            if n % 2 == 0 {
                drop(
                    backend
                        .send("GET /v1/live/bus?$top=5 HTTP/1.1\r\nhost: a")
                        .await,
                );
                return None;
            }
            Some(backend.get("/v1/live/bus?$top=5").await)
        });
    }
    let served: Vec<_> = users.join_all().await.into_iter().flatten().collect();
    assert_eq!(served.len(), 100);
    for answer in served {
        assert_eq!((answer.status, answer.text()), (200, live("bus")));
        assert!(answer.head.contains("\r\nage: "), "{}", answer.head);
    }
    let ledger = bench.server.ledger();
    let seen = ledger.summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 1));
    assert_eq!(&*ledger.arrivals()[0].target, "/v1/live/bus?$top=5");

    let metrics = backend.get("/metrics").await.text();
    assert!(
        metrics.contains("tds_calls_total{kind=\"success\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("tds_sockets_most "), "{metrics}");
    let health = backend.get("/healthz").await;
    assert_eq!(health.status, 200, "{}", health.text());
    assert!(
        health.text().contains("\"ready\":true"),
        "{}",
        health.text()
    );
}

#[tokio::test]
async fn users_are_told_when_to_come_back_and_one_failure_is_for_all() {
    let mut config = Config::default();
    config.faults = faults("503");
    let bench = Bench::new("backend-503", config).await;
    let backend = Serving::start(bench.backend(&["--deadline", "1m"]));
    let failed = backend.get("/v1/live/metro").await;
    assert_eq!(failed.status, 503, "{}", failed.text());
    assert!(
        failed.head.contains("\r\nretry-after: 1\r\n"),
        "{}",
        failed.head
    );
    assert_eq!(failed.text(), r#"{"kind":"unavailable"}"#);
    for _ in 0..20 {
        assert_eq!(backend.get("/v1/live/metro").await.status, 503);
    }
    let calls = bench.server.ledger().summary().data_calls;
    assert!(
        calls < 21,
        "fewer calls than users, attempts and all: {calls}"
    );
    bench.server.sim().set_faults(Faults::default());
    let missing = backend.get("/nothing").await;
    assert_eq!(missing.status, 404, "{}", missing.text());
    assert_eq!(
        backend.get("/v1/live/rail").await.status,
        404,
        "not in the list"
    );
    let posted = backend
        .ask("POST /v1/live/metro HTTP/1.1\r\nhost: a\r\ncontent-length: 0")
        .await;
    assert_eq!(posted.status, 405);
    assert!(
        posted.head.contains("\r\nallow: get, head\r\n"),
        "{}",
        posted.head
    );
}

#[tokio::test]
async fn a_stalled_service_is_504_or_by_choice_what_was_there() {
    at_once(
        [(&[][..], 504), (&["--stale", "1h"], 200)],
        |(more, expected)| async move {
            let bench = Bench::new(&format!("backend-stall-{expected}"), Config::default()).await;
            let arguments = [&["--deadline", "2s", "--fresh", "1ms"], more].concat();
            let backend = Serving::start(bench.backend(&arguments));
            // The first interval of the limits is spent in silence.
            let served = async { while backend.get("/v1/live/metro").await.status != 200 {} };
            timeout(HANGS, served).await.expect("it is served once");
            let mut faults = Faults::default();
            faults.before_head = "3600s".parse().expect("a delay");
            bench.server.sim().set_faults(faults);
            let before = bench.server.ledger().summary().data_calls;
            // A request within a millisecond is served without a call.
            let stalled = timeout(HANGS, async {
                loop {
                    let answer = backend.get("/v1/live/metro").await;
                    if bench.server.ledger().summary().data_calls > before {
                        return answer;
                    }
                }
            });
            let stalled = stalled.await.expect("it asks");
            assert_eq!(stalled.status, expected, "{}", stalled.text());
            if expected == 200 {
                assert_eq!(stalled.text(), live("metro"));
            }
        },
    )
    .await;
}

#[tokio::test]
async fn health_tells_what_is_wrong_and_nothing_secret() {
    let bench = Bench::new("backend-health", Config::default()).await;
    let mut wrong = bench.backend(&[]);
    wrong.env("TDS_CLIENT_SECRET", "wr0ng-s3cr3t");
    let backend = Serving::start(wrong);
    let user = backend.get("/v1/live/metro").await;
    assert_eq!(
        (user.status, user.text()),
        (502, r#"{"kind":"token_refused"}"#.to_owned())
    );
    let health = backend.get("/healthz").await;
    assert_eq!(health.status, 503);
    assert!(
        health.text().contains("refused the credentials"),
        "{}",
        health.text()
    );
    assert!(!health.text().contains("wr0ng-s3cr3t"));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 0));
}

#[tokio::test]
async fn a_quota_that_is_gone_is_503_with_its_end() {
    let mut config = Config::default();
    config.quota = Some(Quota::new(0, Duration::from_secs(86_400)));
    config.retry_after = tds_sim::RetryAfter::Seconds;
    let bench = Bench::new("backend-quota", config).await;
    let backend = Serving::start(bench.backend(&["--deadline", "1m"]));
    let user = backend.get("/v1/live/metro").await;
    assert_eq!(
        (user.status, user.text()),
        (503, r#"{"kind":"quota_exhausted"}"#.to_owned())
    );
    let seconds = user
        .head
        .split_once("retry-after: ")
        .and_then(|(_, rest)| rest.split_once('\r'));
    let seconds: u64 = seconds.expect("when").0.parse().expect("a number");
    assert!(seconds > 3_600, "{seconds}");
}

#[tokio::test]
async fn it_ends_with_what_it_has_begun() {
    let mut config = Config::default();
    config.faults.before_head = "500ms".parse().expect("a delay");
    let bench = Bench::new("backend-end", config).await;
    let mut backend = Serving::start(bench.backend(&["--deadline", "1m"]));
    let mut user = backend.send("GET /v1/live/metro HTTP/1.1\r\nhost: a").await;
    bench.seen(|seen| seen.data_calls == 1).await;
    signal(&backend.child, "-TERM");
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut user, &mut answer)
        .await
        .expect("an end");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let code = backend.child.wait().expect("it ends");
    assert_eq!(code.code(), Some(0));
}

#[tokio::test]
async fn what_it_cannot_use_is_told() {
    let bench = Bench::new("backend-usage", Config::default()).await;
    let list = bench.path("own");
    fs::write(&list, "/metrics\n").expect("a file");
    let own = bench.run(&["backend", "--list", text(&list)]).await;
    assert_eq!(own.status.code(), Some(2));
    assert!(err(&own).contains("this server's own"), "{}", err(&own));
    for more in [
        &["--listen", "nowhere"][..],
        &["--listen", "192.0.2.1:1"],
        &["--fresh", "1"],
    ] {
        let mut arguments = vec!["backend", "--list", text(&list)];
        fs::write(&list, "/v1/live/bus\n").expect("a file");
        arguments.extend(more);
        let run = output(bench.tds(&arguments)).await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    }
}

#[tokio::test]
async fn what_is_too_large_is_nothing_that_its_user_can_correct_and_is_not_brought_each_second() {
    let bench = Bench::new("backend-large", Config::default()).await;
    let upstream = Upstream::start(|_, _| {
        let headers = format!("content-length: {}\r\n", (64 << 20) + 1);
        answer("200 OK", &headers, b"")
    });
    let mut backend = bench.backend(&[]);
    backend.env("TDS_BASE_URL", &upstream.url);
    let backend = Serving::start(backend);
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    // Longer than any other failure is kept.
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    assert_eq!(upstream.heads().len(), 1);
}

#[tokio::test]
async fn users_who_hang_up_free_their_places() {
    let mut config = Config::default();
    config.faults.before_head = "3600s".parse().expect("a delay");
    let bench = Bench::new("backend-left", config).await;
    let backend = Serving::start(bench.backend(&["--deadline", "1h"]));
    let files = || {
        let open = fs::read_dir(format!("/proc/{}/fd", backend.child.id()));
        open.expect("Linux says so").count()
    };
    let first = backend.send("GET /v1/live/metro HTTP/1.1\r\nhost: a").await;
    bench.seen(|seen| seen.data_calls == 1).await;
    let before = files();
    let mut users = Vec::new();
    for _ in 0..500 {
        users.push(backend.send("GET /v1/live/metro HTTP/1.1\r\nhost: a").await);
    }
    let until = async |enough: &dyn Fn(usize) -> bool| {
        let waited = async {
            while !enough(files()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(HANGS, waited).await.expect("it comes to that");
    };
    until(&|open| open >= before + 500).await;
    drop(users);
    until(&|open| open <= before).await;
    assert_eq!(bench.server.ledger().summary().data_calls, 1);
    drop(first);
}
