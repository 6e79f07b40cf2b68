//! `tds backend`: one call for many users, and an answer soon or not at all.

use std::{fs, sync::Arc};

use serde_json::Value;
use tds_sim::Quota;
use tokio::{
    io::AsyncReadExt as _,
    task::JoinSet,
    time::{Duration, sleep},
};

use crate::{
    Bench, at_once, live, says,
    serving::{Answer, Serving},
    signal, until,
    upstream::{answer, late, sized},
};

const METRO: &str = "GET /v1/live/metro HTTP/1.1\r\nhost: localhost";

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[tokio::test]
async fn two_hundred_users_share_one_call_if_half_disconnect() {
    let bench = Bench::new().await;
    bench.fail("head=200ms");
    let backend = Arc::new(bench.serve("--fresh 1h"));
    let mut users = JoinSet::new();
    for n in 0..200 {
        let backend = Arc::clone(&backend);
        users.spawn(async move {
            let user = backend
                .send("GET /v1/live/bus?$top=5 HTTP/1.1\r\nhost: localhost")
                .await;
            if n % 2 == 0 {
                return None;
            }
            Some(Serving::read(user).await)
        });
    }
    let served: Vec<_> = users.join_all().await.into_iter().flatten().collect();
    assert_eq!(served.len(), 100);
    for answer in served {
        assert_eq!((answer.status, answer.text()), (200, live("bus")));
        assert!(answer.head.contains("\r\nage: "), "{}", answer.head);
    }
    assert_eq!(bench.asked(), (1, 1));
    let arrivals = bench.server.ledger().arrivals();
    assert_eq!(&*arrivals[0].target, "/v1/live/bus?$top=5");

    let metrics = backend.get("/metrics").await.text();
    for part in ["tds_calls_total{kind=\"success\"} 1", "tds_sockets_most "] {
        assert!(metrics.contains(part), "{metrics}");
    }
    let health = backend.get("/healthz").await;
    assert_eq!(
        (health.status, &json(&health)["ready"]),
        (200, &true.into())
    );
}

#[tokio::test]
async fn users_share_one_failure_and_get_retry_after() {
    let bench = Bench::new().await;
    bench.fail("503");
    bench.list("/v1/live/metro\n/nothing\n");
    let backend = bench.serve("--list list");
    let failed = backend.get("/v1/live/metro").await;
    assert_eq!(
        (failed.status, &json(&failed)["kind"]),
        (503, &"unavailable".into())
    );
    assert!(
        failed.head.contains("\r\nretry-after: 1\r\n"),
        "{}",
        failed.head
    );
    for _ in 0..20 {
        assert_eq!(backend.get("/v1/live/metro").await.status, 503);
    }
    let (_, calls) = bench.asked();
    assert!(
        calls < 21,
        "fewer calls than users, attempts and all: {calls}"
    );
    bench.fail("");
    assert_eq!(backend.get("/nothing").await.status, 404);
    assert_eq!(
        backend.get("/v1/live/rail").await.status,
        404,
        "not in the list"
    );
    let post = METRO.replace("GET", "POST") + "\r\ncontent-length: 0";
    let posted = backend.ask(&post).await;
    assert_eq!(posted.status, 405);
    assert!(
        posted.head.contains("\r\nallow: get, head\r\n"),
        "{}",
        posted.head
    );
}

#[tokio::test]
async fn stalled_service_gives_504_or_a_stale_response_if_allowed() {
    at_once(
        [("", 504), ("--stale 1h", 200)],
        |(more, expected)| async move {
            let bench = Bench::new().await;
            let backend = bench.serve(&format!("--deadline 2s --fresh 1ms {more}"));
            // The first interval of the limits is spent in silence.
            until(async || backend.get("/v1/live/metro").await.status == 200).await;
            bench.fail("head=3600s");
            // A request within a millisecond is served without a call.
            sleep(Duration::from_millis(5)).await;
            let stalled = backend.get("/v1/live/metro").await;
            assert_eq!(stalled.status, expected, "{}", stalled.text());
            assert!(expected == 504 || stalled.text() == live("metro"));
        },
    )
    .await;
}

#[tokio::test]
async fn health_shows_the_causes_and_no_secret() {
    let bench = Bench::new().await;
    let mut wrong = bench.tds("backend --listen 127.0.0.1:0");
    wrong.env("TDS_CLIENT_SECRET", "wr0ng-s3cr3t");
    let backend = Serving::start(wrong);
    let user = backend.get("/v1/live/metro").await;
    assert_eq!(
        (user.status, &json(&user)["kind"]),
        (502, &"token_refused".into())
    );
    // No restart mends it.
    assert_eq!(backend.get("/livez").await.status, 200);
    for path in ["/healthz", "/readyz"] {
        let health = backend.get(path).await;
        assert_eq!(health.status, 503);
        assert!(
            health.text().contains("refused the request"),
            "{}",
            health.text()
        );
        assert!(!health.text().contains("wr0ng-s3cr3t"));
    }
    assert_eq!(bench.asked(), (1, 0));
}

#[tokio::test]
async fn used_up_quota_gives_503_with_retry_after() {
    let bench = Bench::with(|config| {
        config.quota = Some(Quota::new(0, Duration::from_secs(86_400)));
        config.retry_after = true;
    })
    .await;
    let user = bench.serve("").get("/v1/live/metro").await;
    assert_eq!(
        (user.status, &json(&user)["kind"]),
        (503, &"quota_exhausted".into())
    );
    // A hint of a day is passed on as an hour, because hints may be wrong.
    assert!(
        user.head.contains("\r\nretry-after: 3600\r\n"),
        "{}",
        user.head
    );
}

#[tokio::test]
async fn shutdown_completes_requests_in_flight() {
    let bench = Bench::new().await;
    bench.fail("head=500ms");
    let mut backend = bench.serve("--deadline 1m");
    let mut user = backend.send(METRO).await;
    bench.seen(|seen| seen.data_calls == 1).await;
    signal(&backend.child, "-TERM");
    let mut answer = String::new();
    user.read_to_string(&mut answer).await.expect("an end");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(backend.child.wait().expect("it ends").code(), Some(0));
}

#[tokio::test]
async fn unusable_arguments_are_refused() {
    let bench = Bench::new().await;
    for (list, more, told) in [
        ("/metrics\n", "", "is a path of tds itself"),
        ("/readyz?a\n", "", "is a path of tds itself"),
        ("/v1/live/bus\n", "--listen nowhere", "nowhere"),
        ("/v1/live/bus\n", "--listen 192.0.2.1:1", "192.0.2.1:1"),
        ("/v1/live/bus\n", "--fresh 1", "--fresh"),
    ] {
        bench.list(list);
        let run = bench.ends(2, &format!("backend --list list {more}")).await;
        says(&run, told);
    }
}

#[tokio::test]
async fn too_large_response_is_a_server_error_and_is_cached() {
    let bench = Bench::of(|_, _| {
        let headers = format!("content-length: {}\r\n", (64 << 20) + 1);
        answer("200 OK", &headers, b"")
    })
    .await;
    let backend = bench.serve("");
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    // This failure is kept for longer than any other.
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    assert_eq!(bench.heads().len(), 1);
}

#[tokio::test]
async fn users_who_disconnect_free_their_places() {
    let bench = Bench::new().await;
    bench.fail("head=3600s");
    let backend = bench.serve("");
    let files = || {
        let open = fs::read_dir(format!("/proc/{}/fd", backend.child.id()));
        open.expect("Linux says so").count()
    };
    let first = backend.send(METRO).await;
    bench.seen(|seen| seen.data_calls == 1).await;
    let before = files();
    let mut users = Vec::new();
    for _ in 0..500 {
        users.push(backend.send(METRO).await);
    }
    // The file of the token may already have been open.
    until(async || files() >= before + 490).await;
    drop(users);
    until(async || files() <= before).await;
    assert_eq!(bench.asked().1, 1);
    drop(first);
}

// A balancer sends no user to a backend that is not ready, so no call would need a token.
#[tokio::test]
async fn health_check_alone_gets_a_token_once_the_endpoint_is_back() {
    let bench = Bench::new().await;
    bench.fail("token=down");
    let backend = bench.serve("");
    let fails = async || {
        let health = backend.get("/readyz").await;
        assert_eq!(health.status, 503, "{}", health.text());
        health.text().contains("no token: ")
    };
    until(fails).await;
    bench.fail("");
    until(async || backend.get("/readyz").await.status == 200).await;
    assert_eq!(bench.asked().1, 0);
}

// Reproducer for a health page that was green while every user got a 504.
#[tokio::test]
async fn health_shows_an_outage_and_its_end() {
    let bench = Bench::new().await;
    let backend = bench.serve("--deadline 1s --fresh 1ms");
    until(async || backend.get("/v1/live/metro").await.status == 200).await;
    for path in ["/healthz", "/readyz"] {
        let health = backend.get(path).await;
        assert_eq!(
            (health.status, &json(&health)["ready"]),
            (200, &true.into())
        );
    }
    bench.fail("head=3600s");
    // Three quick requests take less than a millisecond.
    sleep(Duration::from_millis(5)).await;
    for target in ["/v1/live/metro", "/v1/live/bus?$top=5"] {
        assert_eq!(backend.get(target).await.status, 504);
    }
    // It shows once the calls have ended, without any further user.
    let fails = async || {
        let health = json(&backend.get("/healthz").await);
        health["troubles"].to_string().contains("outage for ")
    };
    until(fails).await;
    // The health check itself finds that the service is back.
    bench.fail("");
    until(async || backend.get("/healthz").await.status == 200).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
}

#[tokio::test]
async fn local_programs_get_any_resource_and_web_pages_none() {
    let bench = Bench::new().await;
    let open = bench.ends(2, "backend --listen 0.0.0.0:0").await;
    says(&open, "--list");

    let backend = Arc::new(bench.serve("--deadline 1m"));
    let mut programs = JoinSet::new();
    for n in 0..100 {
        let backend = Arc::clone(&backend);
        programs.spawn(async move { backend.get(&format!("/v1/live/bus-{n}")).await.status });
    }
    assert_eq!(programs.join_all().await, [200; 100]);
    assert_eq!(bench.asked(), (1, 100));
    assert_eq!(bench.summary().by_status, [(200, 100)].into());
    for head in [
        "host: evil.example",
        "host: localhost\r\norigin: https://evil.example",
        "host: localhost\r\nsec-fetch-site: cross-site",
        "host: localhost\r\nhost: evil.example",
    ] {
        let head = format!("GET /v1/live/rail HTTP/1.1\r\n{head}");
        let status = backend.ask(&head).await.status;
        assert!([400, 403].contains(&status), "{head}: {status}");
    }
    assert_eq!(bench.asked().1, 100);
}

#[tokio::test]
async fn least_recently_used_response_is_evicted() {
    let bench = Bench::new().await;
    let backend = bench.serve("--deadline 1m --fresh 1h");
    let target = |n| format!("/v1/history/{n}?bytes=50000000");
    // Six of them are more than the 256 MiB that are kept.
    for n in [0, 1, 2, 3, 4, 0, 5, 0, 1] {
        let answer = backend.get(&target(n)).await;
        assert_eq!((answer.status, answer.body.len()), (200, 50_000_000));
    }
    let arrivals = bench.server.ledger().arrivals();
    let calls = |n| {
        arrivals
            .iter()
            .filter(|it| *it.target == *target(n))
            .count()
    };
    assert_eq!((calls(0), calls(1), calls(5)), (1, 2, 1), "{arrivals:?}");
}

#[tokio::test]
async fn a_request_names_one_host() {
    let bench = Bench::new().await;
    let backend = bench.serve("--deadline 1m --fresh 1h");
    for (head, status) in [
        ("HTTP/1.1\r\nhost: localhost", 200),
        ("HTTP/1.0", 200),
        ("HTTP/1.0\r\nhost: localhost", 200),
        ("HTTP/1.1\r\naccept: */*", 400),
        ("HTTP/1.1\r\nhost: localhost\r\nhost: localhost", 400),
        ("HTTP/1.0\r\nhost: localhost\r\nhost: b", 400),
        ("HTTP/1.1\r\nhost: {a}.example.org", 400),
        ("HTTP/1.0\r\nhost: `.example.org", 400),
        ("HTTP/1.1\r\nhost:", 400),
    ] {
        for path in ["/livez", "/v1/live/metro"] {
            let answer = backend.ask(&format!("GET {path} {head}")).await;
            assert_eq!(answer.status, status, "{path} {head}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_failing_service_is_bridged_by_the_longer_of_its_header_and_the_option() {
    let cases = [
        ("max-age=0, stale-if-error=600", "", 200),
        ("max-age=0, stale-if-error=0", "--stale 1h", 200),
        ("max-age=0, stale-if-error=600", "--stale 1ms", 200),
        ("max-age=0", "", 503),
        ("max-age=0", "--stale 1h", 200),
        (
            "max-age=0, stale-if-error=600, must-revalidate",
            "--stale 1h",
            503,
        ),
        ("max-age=0, proxy-revalidate", "--stale 1h", 503),
        (
            "max-age=0, stale-while-revalidate=600, proxy-revalidate",
            "",
            503,
        ),
        ("max-age=0\r\nvary: accept, *", "--stale 1h", 503),
        ("no-store, stale-if-error=600", "--stale 1h", 503),
        ("no-cache, stale-if-error=600", "", 200),
    ];
    at_once(cases, |(control, stale, status)| async move {
        let bench = Bench::of(move |_, nth| match nth {
            0 => sized("200 OK", &format!("cache-control: {control}\r\n"), b"ok"),
            _ => sized("503 Service Unavailable", "retry-after: 900\r\n", b""),
        })
        .await;
        let backend = bench.serve(&format!("--deadline 1m {stale}"));
        assert_eq!(backend.get("/v1/live/metro").await.text(), "ok");
        sleep(Duration::from_millis(5)).await;
        let user = backend.get("/v1/live/metro").await;
        assert_eq!(user.status, status, "{control}: {}", user.head);
        // The backend repeats its call after a second, whatever the hint.
        let is_soon = user.head.contains("retry-after: 1\r\n");
        assert_eq!(is_soon, status == 503, "{control}: {}", user.head);
    })
    .await;
}

#[tokio::test]
async fn stale_data_is_served_while_one_call_revalidates_it() {
    let bench = Bench::of(|_, nth| {
        let control = "cache-control: max-age=0, stale-while-revalidate=600\r\n";
        let answer = sized("200 OK", control, nth.to_string().as_bytes());
        if nth == 1 { late(answer, 2) } else { answer }
    })
    .await;
    let backend = bench.serve("--deadline 1m");
    assert_eq!(backend.get("/v1/live/metro").await.text(), "0");
    sleep(Duration::from_millis(5)).await;
    for _ in 0..20 {
        assert_eq!(backend.get("/v1/live/metro").await.text(), "0");
    }
    let heads = bench.heads().len();
    assert!(heads <= 2, "one call at a time: {heads}");
    until(async || backend.get("/v1/live/metro").await.text() != "0").await;
}
