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
    upstream::{Upstream, answer, late},
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
async fn two_hundred_users_share_one_call_if_half_disconnect() {
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
async fn users_share_one_failure_and_get_retry_after() {
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
    assert_eq!(json(&failed)["kind"], "unavailable");
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
async fn stalled_service_gives_504_or_a_stale_response_if_allowed() {
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
async fn health_shows_the_causes_and_no_secret() {
    let bench = Bench::new("backend-health", Config::default()).await;
    let mut wrong = bench.backend(&[]);
    wrong.env("TDS_CLIENT_SECRET", "wr0ng-s3cr3t");
    let backend = Serving::start(wrong);
    let user = backend.get("/v1/live/metro").await;
    assert_eq!(
        (user.status, &json(&user)["kind"]),
        (502, &"token_refused".into())
    );
    let health = backend.get("/healthz").await;
    assert_eq!(health.status, 503);
    assert!(
        health.text().contains("refused the request"),
        "{}",
        health.text()
    );
    assert!(!health.text().contains("wr0ng-s3cr3t"));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 0));
}

#[tokio::test]
async fn used_up_quota_gives_503_with_retry_after() {
    let mut config = Config::default();
    config.quota = Some(Quota::new(0, Duration::from_secs(86_400)));
    config.retry_after = true;
    let bench = Bench::new("backend-quota", config).await;
    let backend = Serving::start(bench.backend(&["--deadline", "1m"]));
    let user = backend.get("/v1/live/metro").await;
    assert_eq!(
        (user.status, &json(&user)["kind"]),
        (503, &"quota_exhausted".into())
    );
    let seconds = user
        .head
        .split_once("retry-after: ")
        .and_then(|(_, rest)| rest.split_once('\r'));
    let seconds: u64 = seconds.expect("when").0.parse().expect("a number");
    // A hint of a day is passed on as an hour, because hints may be wrong.
    assert_eq!(seconds, 3_600);
}

#[tokio::test]
async fn shutdown_completes_requests_in_flight() {
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
async fn unusable_arguments_are_refused() {
    let bench = Bench::new("backend-usage", Config::default()).await;
    let list = bench.path("own");
    for path in ["/metrics", "/readyz?a"] {
        fs::write(&list, format!("{path}\n")).expect("a file");
        let own = bench.run(&["backend", "--list", text(&list)]).await;
        assert_eq!(own.status.code(), Some(2));
        assert!(
            err(&own).contains("is a path of tds itself"),
            "{}",
            err(&own)
        );
    }
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
async fn too_large_response_is_a_server_error_and_is_cached() {
    let bench = Bench::new("backend-large", Config::default()).await;
    let upstream = Upstream::start(|_, _| {
        let headers = format!("content-length: {}\r\n", (64 << 20) + 1);
        answer("200 OK", &headers, b"")
    });
    let mut backend = bench.backend(&[]);
    backend.env("TDS_BASE_URL", &upstream.url);
    let backend = Serving::start(backend);
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    // This failure is kept for longer than any other.
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    assert_eq!(upstream.heads().len(), 1);
}

#[tokio::test]
async fn users_who_disconnect_free_their_places() {
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
    // The file of the token may already have been open.
    until(&|open| open >= before + 490).await;
    drop(users);
    until(&|open| open <= before).await;
    assert_eq!(bench.server.ledger().summary().data_calls, 1);
    drop(first);
}

fn json(answer: &crate::serving::Answer) -> serde_json::Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

// A balancer sends no user to a backend that is not ready, so no call would ask for the token.
#[tokio::test]
async fn health_check_alone_gets_a_token_once_the_endpoint_is_back() {
    let bench = Bench::new("backend-no-token", Config::default()).await;
    let mut faults = Faults::default();
    faults.token.push("down".parse().expect("a fault"));
    bench.server.sim().set_faults(faults);
    let backend = Serving::start(bench.backend(&[]));
    let asked = async {
        loop {
            let health = backend.get("/readyz").await;
            assert_eq!(health.status, 503, "{}", health.text());
            if health.text().contains("no token: ") {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, asked).await.expect("the request fails");
    bench.server.sim().set_faults(Faults::default());
    let ready = async {
        while backend.get("/readyz").await.status != 200 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, ready).await.expect("it asks again");
    assert_eq!(bench.server.ledger().summary().data_calls, 0);
}

// Reproducer for a health page that was green while every user got a 504.
#[tokio::test]
async fn health_shows_an_outage_and_its_end() {
    let bench = Bench::new("backend-hang", Config::default()).await;
    let backend = Serving::start(bench.backend(&["--deadline", "1s", "--fresh", "1ms"]));
    let served = async { while backend.get("/v1/live/metro").await.status != 200 {} };
    timeout(HANGS, served).await.expect("it is served once");
    for path in ["/healthz", "/readyz"] {
        let health = backend.get(path).await;
        assert_eq!(health.status, 200, "{}", health.text());
        assert_eq!(json(&health)["ready"], true);
    }
    let mut faults = Faults::default();
    faults.before_head = "3600s".parse().expect("a delay");
    bench.server.sim().set_faults(faults);
    for target in ["/v1/live/metro", "/v1/live/bus?$top=5"] {
        assert_eq!(backend.get(target).await.status, 504);
    }
    // It shows once the calls have ended, without any further user.
    let failed = async {
        loop {
            let health = backend.get("/healthz").await;
            if json(&health)["troubles"]
                .to_string()
                .contains("outage for ")
            {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, failed)
        .await
        .expect("the calls have a deadline");
    // The health check itself finds that the service is back.
    bench.server.sim().set_faults(Faults::default());
    let back = async {
        while backend.get("/healthz").await.status != 200 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, back).await.expect("it is ready again");
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
}

#[tokio::test]
async fn local_programs_get_any_resource_and_web_pages_none() {
    let bench = Bench::new("backend-all", Config::default()).await;
    let open = bench.run(&["backend", "--listen", "0.0.0.0:0"]).await;
    assert_eq!(open.status.code(), Some(2), "{}", err(&open));
    assert!(err(&open).contains("--list"), "{}", err(&open));

    let backend = bench.tds(&["backend", "--listen", "127.0.0.1:0", "--deadline", "1m"]);
    let backend = Arc::new(Serving::start(backend));
    let mut programs = JoinSet::new();
    for n in 0..100 {
        let backend = Arc::clone(&backend);
        programs.spawn(async move { backend.get(&format!("/v1/live/bus-{n}")).await.status });
    }
    assert!(
        programs
            .join_all()
            .await
            .iter()
            .all(|status| *status == 200)
    );
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 100));
    assert_eq!(seen.by_status, [(200, 100)].into());
    for head in [
        "host: evil.example",
        "host: localhost\r\norigin: https://evil.example",
        "host: localhost\r\nsec-fetch-site: cross-site",
        "host: localhost\r\nhost: evil.example",
    ] {
        let answer = backend
            .ask(&format!("GET /v1/live/rail HTTP/1.1\r\n{head}"))
            .await;
        assert!(
            [400, 403].contains(&answer.status),
            "{head}: {}",
            answer.text()
        );
    }
    assert_eq!(bench.server.ledger().summary().data_calls, 100);
}

#[tokio::test]
async fn least_recently_used_response_is_evicted() {
    let bench = Bench::new("backend-room", Config::default()).await;
    let backend = bench.tds(&[
        "backend",
        "--listen",
        "127.0.0.1:0",
        "--deadline",
        "1m",
        "--fresh",
        "1h",
    ]);
    let backend = Serving::start(backend);
    // Six of them are more than the 256 MiB that are kept.
    for n in [0, 1, 2, 3, 4, 0, 5, 0, 1] {
        let answer = backend
            .get(&format!("/v1/history/{n}?bytes=50000000"))
            .await;
        assert_eq!((answer.status, answer.body.len()), (200, 50_000_000));
    }
    let arrivals = bench.server.ledger().arrivals();
    let calls = |n: u32| {
        let target = format!("/v1/history/{n}?bytes=50000000");
        arrivals.iter().filter(|it| *it.target == *target).count()
    };
    assert_eq!((calls(0), calls(1), calls(5)), (1, 2, 1), "{arrivals:?}");
}

#[tokio::test]
async fn a_request_names_one_host() {
    let bench = Bench::new("backend-host", Config::default()).await;
    let backend = Serving::start(bench.backend(&["--deadline", "1m", "--fresh", "1h"]));
    for (head, status) in [
        ("HTTP/1.1\r\nhost: a", 200),
        ("HTTP/1.0", 200),
        ("HTTP/1.0\r\nhost: a", 200),
        ("HTTP/1.1\r\naccept: */*", 400),
        ("HTTP/1.1\r\nhost: a\r\nhost: a", 400),
        ("HTTP/1.0\r\nhost: a\r\nhost: b", 400),
    ] {
        for path in ["/livez", "/v1/live/metro"] {
            let answer = backend.ask(&format!("GET {path} {head}")).await;
            assert_eq!(answer.status, status, "{path} {head}: {}", answer.text());
        }
    }
}

/// A service that answers once, and then fails with 503 and this hint.
fn once(control: &'static str) -> Upstream {
    Upstream::start(move |_, nth| match nth {
        0 => {
            let headers = format!("cache-control: {control}\r\ncontent-length: 2\r\n");
            answer("200 OK", &headers, b"ok")
        }
        _ => answer(
            "503 Service Unavailable",
            "retry-after: 900\r\ncontent-length: 0\r\n",
            b"",
        ),
    })
}

#[tokio::test]
async fn a_failing_service_is_bridged_by_the_longer_of_its_header_and_the_option() {
    at_once(
        [
            ("max-age=0, stale-if-error=600", "", 200),
            ("max-age=0, stale-if-error=0", "1h", 200),
            ("max-age=0, stale-if-error=600", "1ms", 200),
            ("max-age=0", "", 503),
            ("max-age=0, stale-if-error=600, must-revalidate", "1h", 503),
            (
                "max-age=0, stale-while-revalidate=600, proxy-revalidate",
                "",
                503,
            ),
            ("no-store, stale-if-error=600", "1h", 503),
            ("no-cache, stale-if-error=600", "", 200),
        ],
        |(control, stale, status)| async move {
            let name: String = control
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect();
            let bench = Bench::new(&format!("stale-{name}-{stale}"), Config::default()).await;
            let upstream = once(control);
            let stale: &[&str] = if stale.is_empty() {
                &[]
            } else {
                &["--stale", stale]
            };
            let more = ["--deadline", "1m", "--base-url", &*upstream.url];
            let more = [&more[..], stale].concat();
            let backend = Serving::start(bench.backend(&more));
            assert_eq!(backend.get("/v1/live/metro").await.text(), "ok");
            sleep(Duration::from_millis(5)).await;
            let user = backend.get("/v1/live/metro").await;
            assert_eq!(user.status, status, "{control}: {}", user.head);
            // The backend itself asks again after a second, whatever the hint.
            let is_soon = user.head.contains("retry-after: 1\r\n");
            assert_eq!(is_soon, status == 503, "{control}: {}", user.head);
        },
    )
    .await;
}

#[tokio::test]
async fn stale_data_is_served_while_one_call_revalidates_it() {
    let bench = Bench::new("stale-while", Config::default()).await;
    let upstream = Upstream::start(|_, nth| {
        let body = nth.to_string();
        let headers = format!(
            "cache-control: max-age=0, stale-while-revalidate=600\r\ncontent-length: {}\r\n",
            body.len()
        );
        let answer = answer("200 OK", &headers, body.as_bytes());
        if nth == 1 { late(answer, 2) } else { answer }
    });
    let more = ["--deadline", "1m", "--base-url", &*upstream.url];
    let backend = Serving::start(bench.backend(&more));
    assert_eq!(backend.get("/v1/live/metro").await.text(), "0");
    sleep(Duration::from_millis(5)).await;
    for _ in 0..20 {
        assert_eq!(backend.get("/v1/live/metro").await.text(), "0");
    }
    let heads = upstream.heads().len();
    assert!(heads <= 2, "one call at a time: {heads}");
    let newer = async {
        while backend.get("/v1/live/metro").await.text() == "0" {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, newer).await.expect("the call goes on");
}
