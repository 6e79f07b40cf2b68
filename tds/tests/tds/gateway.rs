//! `tds gateway`: the service for programs in any language, by one token and one limit.

mod access;
mod bodies;

use std::{
    io::{Write as _, stderr},
    process::Command,
    sync::Arc,
};

use tds_sim::Config;
use tokio::{task::JoinSet, time::Duration};

use crate::{
    Bench, at_once, live,
    serving::Serving,
    upstream::{Upstream, answer, late},
};

impl Bench {
    fn gateway(&self, more: &[&str]) -> Command {
        let mut arguments = vec!["gateway", "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        self.tds(&arguments)
    }
}

#[tokio::test]
async fn many_clients_share_one_token_and_one_limit() {
    let bench = Bench::new("gateway-many", Config::default()).await;
    let gateway = Arc::new(Serving::start(bench.gateway(&["--deadline", "2m"])));
    let mut clients = JoinSet::new();
    for n in 0..200 {
        let gateway = Arc::clone(&gateway);
        clients.spawn(async move { gateway.get(&format!("/v1/live/bus-{n}?$filter=a%24")).await });
    }
    let answers = clients.join_all().await;
    assert_eq!(answers.len(), 200);
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.body.len(), 128);
    }
    let ledger = bench.server.ledger();
    let seen = ledger.summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 200));
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    assert!(
        seen.largest_second <= 50 && seen.peak_sockets <= 60,
        "{seen:?}"
    );
    let byte_exact = |target: &str| target.ends_with("?$filter=a%24");
    assert!(
        ledger
            .arrivals()
            .iter()
            .all(|arrival| byte_exact(&arrival.target))
    );
}

#[tokio::test]
async fn headers_of_a_connection_stay_there_and_nothing_secret_goes_either_way() {
    let bench = Bench::new("gateway-headers", Config::default()).await;
    let upstream = Upstream::start(|head, _| {
        let token = head
            .lines()
            .find_map(|line| line.strip_prefix("authorization: "));
        let token = token.expect("it has one");
        let headers = format!(
            "x-data: 1\r\nx-echo: got {token}!\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
             connection: x-hop\r\ncontent-length: 2\r\n"
        );
        let body: &[u8] = if head.starts_with("HEAD") { b"" } else { b"ok" };
        answer("200 OK", &headers, body)
    });
    let mut gateway = bench.gateway(&[]);
    gateway.env("TDS_BASE_URL", &upstream.url);
    let gateway = Serving::start(gateway);
    let head = "GET /a?b=%2F HTTP/1.1\r\nhost: localhost:1\r\nauthorization: Bearer mine\r\n\
                accept: text/csv\r\nrange: bytes=0-\r\nx-mine: 1\r\nte: trailers\r\n\
                keep-alive: 1\r\nproxy-authorization: Basic bWluZQ==\r\nx-tds-deadline: 20s\r\n\
                connection: x-mine";
    let answer = gateway.ask(head).await;
    assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()));
    assert!(answer.head.contains("\r\nx-data: 1\r\n"), "{}", answer.head);
    for gone in ["x-echo", "x-hop:", "keep-alive:", "timeout=5"] {
        assert!(!answer.head.contains(gone), "{gone}: {}", answer.head);
    }
    let seen = &upstream.heads()[0];
    assert!(seen.starts_with("GET /a?b=%2F HTTP/1.1\r\n"), "{seen}");
    for there in [
        "\r\naccept: text/csv\r\n",
        "\r\nrange: bytes=0-\r\n",
        "\r\nauthorization: Bearer ey",
    ] {
        assert!(seen.contains(there), "{there}: {seen}");
    }
    for gone in [
        "mine",
        "trailers",
        "keep-alive",
        "proxy-",
        "x-tds-deadline",
        "bWluZQ",
    ] {
        assert!(!seen.contains(gone), "{gone}: {seen}");
    }
    let head = gateway.ask("HEAD /a HTTP/1.1\r\nhost: localhost").await;
    assert_eq!((head.status, head.text()), (200, String::new()));
    assert!(
        head.head.contains("\r\ncontent-length: 2\r\n"),
        "{}",
        head.head
    );
    assert!(upstream.heads()[1].starts_with("HEAD /a HTTP/1.1\r\n"));
}

#[tokio::test]
async fn errors_are_json_with_a_kind_and_what_to_do() {
    let bench = Bench::new("gateway-errors", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&[]));
    let missing = gateway.get("/nothing").await;
    assert_eq!(missing.status, 404, "{}", missing.text());
    assert!(
        missing
            .head
            .contains("\r\ncontent-type: application/json\r\n")
    );
    let json: serde_json::Value = serde_json::from_slice(&missing.body).expect("JSON");
    assert_eq!(json["kind"], "not_found");
    assert!(
        json["error"]
            .as_str()
            .expect("text")
            .contains("check the path"),
        "{json}"
    );

    for (head, status) in [
        (
            "POST /v1/live/bus HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0",
            405,
        ),
        (
            "GET /v1/live/bus HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1",
            400,
        ),
        (
            "GET /v1/live/bus HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked",
            400,
        ),
        (
            "GET /v1/live/bus HTTP/1.1\r\nhost: localhost\r\nx-tds-deadline: soon",
            400,
        ),
        ("GET /v1/live/bus HTTP/1.1\r\nhost: evil.example", 403),
        (
            "GET /v1/live/bus HTTP/1.1\r\nhost: localhost.evil.example:80",
            403,
        ),
        ("GET /v1/live/bus HTTP/1.1\r\nhost: [::1]:80", 200),
        ("GET /v1/live/bus HTTP/1.1\r\nhost: 127.0.0.1", 200),
        ("GET /v1/live/bus HTTP/1.1\r\nhost: 127.0.0.2:80", 200),
        ("GET /v1/live/bus HTTP/1.1\r\nhost: 128.0.0.1", 403),
        (
            "GET http://localhost/v1/live/bus HTTP/1.1\r\nhost: localhost",
            200,
        ),
    ] {
        let answer = gateway.ask(head).await;
        assert_eq!(answer.status, status, "{head}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_program_waits_no_longer_than_it_says() {
    let own = "\r\nx-tds-deadline: 2s";
    let longer = "\r\nx-tds-deadline: 1h";
    // A wait of an hour would hang.
    at_once(
        [
            ("own", "1h", own),
            ("none", "2s", ""),
            ("longer", "2s", longer),
        ],
        |(name, option, more)| async move {
            let mut config = Config::default();
            config.faults.before_head = "3600s".parse().expect("a delay");
            let bench = Bench::new(&format!("gateway-deadline-{name}"), config).await;
            let gateway = Serving::start(bench.gateway(&["--deadline", option]));
            let head = format!("GET /v1/live/bus HTTP/1.1\r\nhost: localhost{more}");
            let late = gateway.ask(&head).await;
            assert_eq!(late.status, 504, "{}", late.text());
            assert!(late.text().contains("\"kind\":"), "{}", late.text());
        },
    )
    .await;
}

#[tokio::test]
async fn curl_and_python_get_data_without_a_token() {
    let bench = Bench::new("gateway-curl", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&[]));
    let url = format!("http://{}/v1/live/bus", gateway.address);
    let code = format!("import urllib.request as u; print(end=u.urlopen('{url}').read().decode())");
    let mut curl = Command::new("curl");
    curl.args(["-sf", "--noproxy", "*", &url]);
    let mut python = Command::new("python3");
    python.args(["-c", &code]).env("no_proxy", "*");
    for program in [curl, python] {
        let name = format!("{:?}", program.get_program());
        let run = tokio::task::spawn_blocking(move || { program }.output()).await;
        match run.expect("no panic") {
            Ok(run) => assert_eq!(String::from_utf8_lossy(&run.stdout), live("bus"), "{name}"),
            Err(error) => {
                // Not by a macro, whose output a test that passes keeps to itself.
                writeln!(stderr(), "SKIPPED: {name}: {error}").expect("somebody reads");
            }
        }
    }
    tokio::time::timeout(
        Duration::from_secs(60),
        bench.seen(|seen| seen.complete >= 1),
    )
    .await
    .expect("one of them is there");
}

#[tokio::test]
async fn a_token_that_was_renewed_on_the_way_is_not_passed_on_either() {
    let mut config = Config::default();
    config.expires_in = 3;
    let bench = Bench::new("gateway-echo", config).await;
    let upstream = Upstream::start(|head, _| {
        let sent = head
            .lines()
            .find_map(|line| line.strip_prefix("authorization: "));
        let headers = format!(
            "x-echo: {}\r\ncontent-length: 2\r\n",
            sent.unwrap_or_default()
        );
        // Its token is no more when the head comes.
        late(answer("200 OK", &headers, b"ok"), 5)
    });
    let mut gateway = bench.gateway(&[]);
    gateway.env("TDS_BASE_URL", &upstream.url);
    let gateway = Serving::start(gateway);
    let answer = gateway.get("/a").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(upstream.heads()[0].contains("authorization: Bearer ey"));
    assert!(!answer.head.contains("x-echo"), "{}", answer.head);
}

#[tokio::test]
async fn a_gateway_that_is_started_anew_sends_nothing_too_early() {
    let bench = Bench::new("gateway-anew", Config::default()).await;
    for _ in 0..2 {
        let gateway = Arc::new(Serving::start(bench.gateway(&[])));
        let mut clients = JoinSet::new();
        for n in 0..50 {
            let gateway = Arc::clone(&gateway);
            clients.spawn(async move { gateway.get(&format!("/v1/live/bus-{n}")).await.status });
        }
        assert!(clients.join_all().await.iter().all(|status| *status == 200));
        // It is killed here, and the next one begins at once.
    }
    let seen = bench.server.ledger().summary();
    assert_eq!(seen.by_status, [(200, 100)].into());
    assert!(
        seen.token_posts == 1 && seen.largest_second <= 50,
        "{seen:?}"
    );
}
