//! Web pages of other origins, and the stop of a backend behind a balancer.

use std::{fs, os::unix::net::UnixDatagram};

use tds_sim::Config;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Duration, sleep, timeout},
};

use crate::{Bench, HANGS, err, output, serving::Serving, signal, text};

fn backend(bench: &Bench, more: &[&str], is_listed: bool) -> std::process::Command {
    let list = bench.path("resources");
    fs::write(&list, "/v1/live/metro\n").expect("a file");
    let mut arguments = vec!["backend", "--listen", "127.0.0.1:0"];
    if is_listed {
        arguments.extend(["--list", text(&list)]);
    }
    arguments.extend(more);
    bench.tds(&arguments)
}

#[tokio::test]
async fn pages_of_an_allowed_origin_may_read_and_others_may_not() {
    let bench = Bench::new("origin-list", Config::default()).await;
    let app = "https://app.example.org";
    let local = Serving::start(backend(&bench, &["--allow-origin", app], false));
    let listed = Serving::start(backend(&bench, &["--allow-origin", "*"], true));
    let closed = Serving::start(backend(&bench, &[], false));
    let get = "GET /v1/live/metro HTTP/1.1\r\nhost: localhost";
    for (backend, more, status, allowed) in [
        (
            &local,
            "origin: https://app.example.org\r\nsec-fetch-site: cross-site",
            200,
            Some(app),
        ),
        (
            &local,
            "origin: https://evil.example.org\r\nsec-fetch-site: cross-site",
            403,
            None,
        ),
        (&local, "origin: null", 403, None),
        (&local, "sec-fetch-site: cross-site", 403, None),
        (&local, "x: y", 200, None),
        (&listed, "origin: https://evil.example.org", 200, Some("*")),
        (&closed, "origin: https://app.example.org", 403, None),
    ] {
        let got = backend.ask(&format!("{get}\r\n{more}")).await;
        assert_eq!(got.status, status, "{more}: {}", got.head);
        let line = allowed.map(|origin| format!("access-control-allow-origin: {origin}\r\n"));
        let has = |line: &String| got.head.contains(line);
        assert!(line.as_ref().is_none_or(has), "{more}: {}", got.head);
        assert_eq!(
            got.head.contains("access-control-allow-origin"),
            line.is_some(),
            "{more}: {}",
            got.head
        );
        if line.is_some() {
            let exposed = "access-control-expose-headers: etag,age,link,retry-after";
            assert!(got.head.contains(exposed), "{}", got.head);
        }
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
        let run = output(backend(&bench, &["--allow-origin", origin], false)).await;
        assert_eq!(run.status.code(), Some(2), "{origin}: {}", err(&run));
        assert!(err(&run).contains(told), "{origin}: {}", err(&run));
    }
}

#[tokio::test]
async fn draining_backend_is_not_ready_and_still_serves() {
    let bench = Bench::new("origin-drain", Config::default()).await;
    let manager = bench.path("notify");
    let told = UnixDatagram::bind(&manager).expect("a socket");
    let mut run = backend(&bench, &["--drain", "3s"], true);
    run.env("NOTIFY_SOCKET", &manager);
    let mut backend = Serving::start(run);
    let message = || {
        let mut bytes = [0; 64];
        let length = told.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    assert!(message().contains("READY=1"));
    assert_eq!(backend.get("/livez").await.status, 200);
    while backend.get("/readyz").await.status != 200 {
        sleep(Duration::from_millis(10)).await;
    }
    signal(&backend.child, "-TERM");
    // While the first message was waited for, this thread's service gave no token.
    let mut next = message();
    while next.starts_with("STATUS=") {
        next = message();
    }
    assert!(next.contains("STOPPING=1"), "{next}");
    let ready = backend.get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("it is stopping"), "{}", ready.text());
    assert_eq!(backend.get("/livez").await.status, 200);
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    let address = backend.address;
    let ended = async {
        while backend.child.try_wait().expect("it is ours").is_none() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANGS, ended).await.expect("it ends");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn live_backend_is_not_restarted_for_an_outage() {
    let bench = Bench::new("origin-live", Config::default()).await;
    let mut run = backend(&bench, &[], true);
    run.env("TDS_CLIENT_SECRET", "wr0ng");
    let backend = Serving::start(run);
    assert_eq!(backend.get("/v1/live/metro").await.status, 502);
    assert_eq!(backend.get("/readyz").await.status, 503);
    assert_eq!(backend.get("/livez").await.status, 200);
}

#[tokio::test]
#[ignore = "80 s"]
async fn half_sent_request_ends_after_75_seconds() {
    let bench = Bench::new("origin-half", Config::default()).await;
    let backend = Serving::start(backend(&bench, &["--fresh", "1h"], true));
    let request = b"GET /v1/live/metro HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut halves = JoinSet::new();
    for n in 0..300 {
        let mut half = TcpStream::connect(backend.address)
            .await
            .expect("it listens");
        halves.spawn(async move {
            // Some of these connections have had a whole request before.
            if n % 3 == 0 {
                half.write_all(request).await.expect("it reads");
                let mut answer = [0; 4_096];
                assert!(half.read(&mut answer).await.expect("an answer") > 0);
            }
            half.write_all(b"GET /v1/live/metro HTTP/1.1\r\nhost")
                .await
                .expect("it reads");
            let mut rest = Vec::new();
            // A reset counts as an end, too.
            half.read_to_end(&mut rest).await.unwrap_or_default();
        });
    }
    timeout(HANGS, halves.join_all())
        .await
        .expect("each is closed");
}
