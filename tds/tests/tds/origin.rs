//! Web pages of other origins, and the stop of a backend behind a balancer.

use std::{fs, os::unix::net::UnixDatagram};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Duration, timeout},
};

use crate::{Bench, says, serving::Serving, signal, until};

#[tokio::test]
async fn pages_of_an_allowed_origin_may_read_and_others_may_not() {
    let bench = Bench::new().await;
    bench.list("/v1/live/metro\n");
    let app = "https://app.example.org";
    let local = bench.serve(&format!("--allow-origin {app}"));
    let listed = bench.serve("--list list --allow-origin *");
    let closed = bench.serve("");
    let cross = "sec-fetch-site: cross-site";
    for (backend, more, status, allowed) in [
        (
            &local,
            &*format!("origin: {app}\r\n{cross}"),
            200,
            Some(app),
        ),
        (
            &local,
            &format!("origin: https://evil.example.org\r\n{cross}"),
            403,
            None,
        ),
        (&local, "origin: null", 403, None),
        (&local, cross, 403, None),
        (&local, "x: y", 200, None),
        (&listed, "origin: https://evil.example.org", 200, Some("*")),
        (&closed, &format!("origin: {app}"), 403, None),
    ] {
        let head = format!("GET /v1/live/metro HTTP/1.1\r\nhost: localhost\r\n{more}");
        let got = backend.ask(&head).await;
        assert_eq!(got.status, status, "{more}: {}", got.head);
        let lines = got.head.lines();
        let mut lines = lines.filter_map(|line| line.strip_prefix("access-control-allow-origin: "));
        assert_eq!(lines.next(), allowed, "{more}: {}", got.head);
        let exposed = "access-control-expose-headers: etag,age,link,retry-after";
        assert!(
            allowed.is_none() || got.head.contains(exposed),
            "{}",
            got.head
        );
    }
    // Another name of the host stays refused (DNS rebinding).
    let rebound = format!("GET /v1/live/metro HTTP/1.1\r\nhost: evil.example.org\r\norigin: {app}");
    assert_eq!(local.ask(&rebound).await.status, 403);
    let asked = format!(
        "OPTIONS /v1/live/metro HTTP/1.1\r\nhost: localhost\r\norigin: {app}\r\n\
         access-control-request-method: GET\r\naccess-control-request-headers: if-none-match"
    );
    let told = local.ask(&asked).await;
    assert_eq!(told.status, 200, "{}", told.head);
    for line in [
        "access-control-allow-methods: get,head",
        "access-control-allow-headers: accept,if-none-match",
    ] {
        assert!(told.head.contains(line), "{}", told.head);
    }
    assert_eq!(closed.ask(&asked).await.status, 405);

    for (origin, told) in [
        ("*", "--list"),
        ("app.example.org", "write an origin"),
        ("https://a/b", "write an origin"),
    ] {
        let run = bench
            .ends(2, &format!("backend --allow-origin {origin}"))
            .await;
        says(&run, told);
    }
}

/// A backend that a service manager waits for, and its notifications.
fn managed(bench: &Bench, more: &str, id: Option<&str>) -> (Serving, impl Fn() -> String) {
    let manager = bench.path("notify");
    let told = UnixDatagram::bind(&manager).expect("a socket");
    let mut run = bench.tds(&format!("backend --listen 127.0.0.1:0 {more}"));
    run.env("NOTIFY_SOCKET", &manager);
    run.envs(id.map(|id| ("TDS_CLIENT_ID", id)));
    let message = move || {
        let mut bytes = [0; 1_024];
        let length = told.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    (Serving::start(run), message)
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_backend_is_not_ready_and_still_serves() {
    let bench = Bench::new().await;
    let (mut backend, message) = managed(&bench, "--drain 3s", None);
    assert!(message().contains("READY=1"));
    assert_eq!(backend.get("/livez").await.status, 200);
    until(async || backend.get("/readyz").await.status == 200).await;
    signal(&backend.child, "-TERM");
    let stops = message();
    assert!(stops.contains("STOPPING=1"), "{stops}");
    let ready = backend.get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("it is stopping"), "{}", ready.text());
    assert_eq!(backend.get("/livez").await.status, 200);
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    until(async || backend.child.try_wait().expect("it is ours").is_some()).await;
    assert!(TcpStream::connect(backend.address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_waits_for_a_token_or_the_first_failure_and_its_reason_is_a_line() {
    let bench = Bench::new().await;
    for (faults, id, status) in [
        ("", None, "there is a token"),
        // It is stored.
        ("token=503", None, "there is a token"),
        ("", Some("other"), "no token: "),
        ("token=slow:3600s", Some("third"), "no token"),
    ] {
        bench.fail(faults);
        let (backend, message) = managed(&bench, "", id);
        let ready = message();
        assert!(
            ready.starts_with(&format!("READY=1\nSTATUS={status}")),
            "{faults}: {ready}"
        );
        let log = backend.log();
        assert_eq!(
            log.contains("no token"),
            status.starts_with("no"),
            "{faults}: {log}"
        );
        fs::remove_file(bench.path("notify")).expect("its socket");
    }
}

#[tokio::test]
#[ignore = "80 s"]
async fn half_sent_request_ends_after_75_seconds() {
    let bench = Bench::new().await;
    let backend = bench.serve("--fresh 1h");
    let request = b"GET /v1/live/metro HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut halves = JoinSet::new();
    for n in 0..300 {
        let half = TcpStream::connect(backend.address).await;
        let mut half = half.expect("it listens");
        halves.spawn(async move {
            // Some of these connections have had a whole request before.
            if n % 3 == 0 {
                half.write_all(request).await.expect("it reads");
                let mut answer = [0; 4_096];
                assert!(half.read(&mut answer).await.expect("an answer") > 0);
            }
            let part = half.write_all(b"GET /v1/live/metro HTTP/1.1\r\nhost").await;
            part.expect("it reads");
            let mut rest = Vec::new();
            // A reset counts as an end as well.
            half.read_to_end(&mut rest).await.unwrap_or_default();
        });
    }
    let closed = timeout(Duration::from_secs(120), halves.join_all()).await;
    closed.expect("each is closed");
}
