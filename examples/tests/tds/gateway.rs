//! `tds gateway`: the service for programs in any language, by one token and one limit.

use std::{
    io::{Write as _, stderr},
    process::Command,
    sync::Arc,
};

use tds_sim::{Config, Outcome};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::Duration,
};

use crate::{
    Bench, err, live,
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
    for n in 0..300 {
        let gateway = Arc::clone(&gateway);
        clients.spawn(async move { gateway.get(&format!("/v1/live/bus-{n}?$filter=a%24")).await });
    }
    let answers = clients.join_all().await;
    assert_eq!(answers.len(), 300);
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.body.len(), 128);
    }
    let ledger = bench.server.ledger();
    let seen = ledger.summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 300));
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
    let mut config = Config::default();
    config.faults.before_head = "3600s".parse().expect("a delay");
    let bench = Bench::new("gateway-deadline", config).await;
    let gateway = Serving::start(bench.gateway(&["--deadline", "1h"]));
    let head = "GET /v1/live/bus HTTP/1.1\r\nhost: localhost\r\nx-tds-deadline: 2s";
    let late = gateway.ask(head).await;
    assert_eq!(late.status, 504, "{}", late.text());
    assert!(late.text().contains("\"kind\":"), "{}", late.text());
}

#[tokio::test]
async fn bodies_stream_and_who_hangs_up_frees_its_place() {
    let bench = Bench::new("gateway-stream", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&[]));
    let target = "/v1/history/1?bytes=100000000&rate=100000&framing=chunked";
    let head = format!("GET {target} HTTP/1.1\r\nhost: localhost");
    let mut stream = gateway.send(&head).await;
    let mut first = vec![0; 4_096];
    // It would take a quarter of an hour to come whole.
    stream
        .read_exact(&mut first)
        .await
        .expect("the first of it");
    assert_eq!(
        bench.server.ledger().arrivals()[0].outcome,
        Outcome::InProgress
    );
    drop(stream);
    bench.seen(|seen| seen.aborted == 1).await;

    let whole = gateway.get("/v1/history/2?bytes=300000").await;
    assert_eq!((whole.status, whole.body.len()), (200, 300_000));
}

#[tokio::test]
async fn other_machines_need_its_key() {
    let bench = Bench::new("gateway-key", Config::default()).await;
    let remote = ["gateway", "--listen", "0.0.0.0:0"];
    let run = bench.run(&remote).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    assert!(err(&run).contains("--allow-remote"), "{}", err(&run));
    let remote = [&remote[..], &["--allow-remote"]].concat();
    let run = bench.run(&remote).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    assert!(err(&run).contains("TDS_GATEWAY_KEY"), "{}", err(&run));

    let mut keyed = bench.gateway(&["--allow-remote"]);
    keyed.env("TDS_GATEWAY_KEY", "0123456789abcdef");
    let gateway = Serving::start(keyed);
    for (brought, status) in [
        ("host: a", 401),
        ("host: a\r\nauthorization: Bearer 0123456789abcdeX", 401),
        ("host: a\r\nauthorization: Bearer 0123456789abcde", 401),
        ("host: a\r\nauthorization: Bearer 0123456789abcdef", 200),
    ] {
        let answer = gateway
            .ask(&format!("GET /v1/live/bus HTTP/1.1\r\n{brought}"))
            .await;
        assert_eq!(answer.status, status, "{brought}: {}", answer.text());
        assert!(!answer.text().contains("0123456789"), "{}", answer.text());
    }
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
async fn a_page_of_somebody_else_reads_nothing_through_it() {
    let upstream = Upstream::start(|_, _| {
        let headers = "access-control-allow-origin: *\r\nset-cookie: a=b\r\ncontent-length: 2\r\n";
        answer("200 OK", headers, b"ok")
    });
    let bench = Bench::new("gateway-page", Config::default()).await;
    let mut gateway = bench.tds(&["gateway", "--listen", "127.0.0.1:0"]);
    gateway.env("TDS_BASE_URL", &upstream.url);
    let gateway = Serving::start(gateway);
    let head = "GET /x HTTP/1.1\r\nhost: localhost";
    for page in ["origin: https://evil.example", "sec-fetch-site: cross-site"] {
        let answer = gateway.ask(&format!("{head}\r\n{page}")).await;
        assert_eq!(answer.status, 403, "{page}");
    }
    assert_eq!(upstream.heads().len(), 0);
    let answer = gateway.ask(&format!("{head}\r\ncookie: CANARY")).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.head.contains("access-control") && !answer.head.contains("set-cookie"));
    assert!(!upstream.heads().concat().contains("CANARY"));
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
async fn who_does_not_read_holds_no_place_for_long() {
    let bench = Bench::new("gateway-unread", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&["--unread", "1s", "--deadline", "20s"]));
    let mut streams = Vec::new();
    for n in 0..50 {
        let target = format!("/v1/history/{n}?bytes=100000000&framing=chunked");
        let head = format!("GET {target} HTTP/1.1\r\nhost: localhost");
        streams.push(gateway.send(&head).await);
    }
    bench.seen(|seen| seen.data_calls == 50).await;
    let other = gateway.get("/v1/live/bus").await;
    assert_eq!((other.status, other.text()), (200, live("bus")));
    bench.seen(|seen| seen.aborted == 50).await;

    // An answer that comes slowly is not cut: whoever waits for it reads.
    let target = "/v1/history/slow?bytes=300000&rate=100000";
    let slow = gateway.get(target).await;
    assert_eq!((slow.status, slow.body.len()), (200, 300_000));
}

#[tokio::test]
async fn who_reads_slowly_is_not_cut() {
    let bench = Bench::new("gateway-slow", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&["--unread", "1s", "--deadline", "20s"]));
    // The system keeps little for this reader, so that what it has not read is the gateway's to send.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("a size");
    let mut stream = socket.connect(gateway.address).await.expect("it listens");
    let head = "GET /v1/history/all?bytes=6000000 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let (mut piece, mut got) = ([0; 25_000], 0);
    loop {
        match stream.read(&mut piece).await.expect("nobody cuts it") {
            0 => break,
            length => got += length,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(got > 6_000_000, "{got}");
}

/// What comes on a connection that is sent this alone, until the gateway closes it by itself.
async fn closed_after(gateway: &Serving, sent: &[u8]) -> String {
    let stream = TcpStream::connect(gateway.address).await;
    let mut stream = stream.expect("it listens");
    stream.write_all(sent).await.expect("it reads");
    let mut answer = Vec::new();
    // A reset is an end, too.
    drop(stream.read_to_end(&mut answer).await);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_head_that_does_not_come_keeps_no_connection() {
    let bench = Bench::new("gateway-head", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&[]));
    let half = b"GET /v1/live/bus HTTP/1.1\r\nhost: local";
    assert_eq!(closed_after(&gateway, half).await, "");
}

/// A stream of HTTP/2 that grants no window would hold its places for as long as it likes.
#[tokio::test]
async fn it_speaks_http_1_alone() {
    let bench = Bench::new("gateway-http2", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&[]));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let answer = closed_after(&gateway, preface).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer:?}"
    );
}

#[tokio::test]
async fn whose_host_is_not_one_text_is_refused() {
    let bench = Bench::new("gateway-host", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&[]));
    let two = gateway.ask("GET /v1/live/a HTTP/1.1\r\nhost: localhost\r\nhost: else.example");
    assert_eq!(two.await.status, 400);
    let odd = gateway.ask("GET /v1/live/a HTTP/1.1\r\nhost: else\u{e9}.example");
    assert_eq!(odd.await.status, 400);
    assert_eq!(bench.server.ledger().summary().data_calls, 0);
}

#[tokio::test]
async fn a_scheme_is_known_in_any_case() {
    let bench = Bench::new("gateway-case", Config::default()).await;
    let mut gateway = bench.gateway(&["--allow-remote"]);
    gateway.env("TDS_GATEWAY_KEY", "0123456789abcdef");
    let gateway = Serving::start(gateway);
    for (brought, status) in [
        ("bearer 0123456789abcdef", 200),
        ("BEARER 0123456789abcdef", 200),
        ("bearer 0123456789ABCDEF", 401),
        ("basic 0123456789abcdef", 401),
        ("0123456789abcdef", 401),
        ("bear", 401),
    ] {
        let head = format!("GET /v1/live/a HTTP/1.1\r\nhost: x\r\nauthorization: {brought}");
        assert_eq!(gateway.ask(&head).await.status, status, "{brought}");
    }
}

#[tokio::test]
async fn answers_of_an_older_protocol_are_passed_on_by_this_one() {
    let bench = Bench::new("gateway-old", Config::default()).await;
    let upstream = Upstream::start(|head, _| {
        let (headers, body): (_, &[u8]) = match head.split(' ').nth(1) {
            Some("/switch") => return b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_vec(),
            Some("/whole") => ("content-length: 4\r\n", b"1234"),
            Some("/cut") => ("content-length: 9\r\n", b"1234"),
            _ => ("", b"1234"),
        };
        let version = if head.starts_with("GET /open-1.1 ") {
            "1.1"
        } else {
            "1.0"
        };
        let head = format!("HTTP/{version} 200 OK\r\n{headers}\r\n");
        [head.as_bytes(), body].concat()
    });
    let mut gateway = bench.gateway(&[]);
    gateway.env("TDS_BASE_URL", &upstream.url);
    let gateway = Serving::start(gateway);
    for (path, version, length) in [
        ("/whole", "http/1.1 200", Some(4)),
        ("/cut", "http/1.1 200", Some(9)),
        // A chunk of no bytes would say that it is whole.
        ("/open", "http/1.0 200", None),
        ("/open-1.1", "http/1.0 200", None),
        ("/switch", "http/1.1 502", None),
    ] {
        let answer = gateway.get(path).await;
        assert!(answer.head.starts_with(version), "{path}: {}", answer.head);
        assert!(
            !answer.head.contains("transfer-encoding"),
            "{path}: {}",
            answer.head
        );
        if let Some(length) = length {
            let length = format!("content-length: {length}\r\n");
            assert!(answer.head.contains(&length), "{path}: {}", answer.head);
        }
        if path != "/switch" {
            assert_eq!(answer.text(), "1234", "{path}");
        }
    }
}

#[tokio::test]
async fn a_length_is_the_bodys_own_or_none() {
    let bench = Bench::new("gateway-length", Config::default()).await;
    let upstream = Upstream::start(|head, _| {
        let (length, body): (_, &[u8]) = match head.split(' ').nth(1) {
            Some("/less") => ("content-length: 3\r\n", b"8\r\n12345678\r\n0\r\n\r\n"),
            Some("/more") => ("content-length: 30\r\n", b"8\r\n12345678\r\n0\r\n\r\n"),
            _ => ("", b"8\r\n12345678\r\n0\r\n\r\n"),
        };
        let body = if head.starts_with("HEAD") { b"" } else { body };
        let headers = format!("transfer-encoding: chunked\r\n{length}");
        answer("200 OK", &headers, body)
    });
    let mut gateway = bench.gateway(&[]);
    gateway.env("TDS_BASE_URL", &upstream.url);
    let gateway = Serving::start(gateway);
    for path in ["/less", "/more", "/none"] {
        let whole = gateway.get(path).await;
        let text = whole.text();
        assert_eq!(text, "8\r\n12345678\r\n0\r\n\r\n", "{path}: {}", whole.head);
        let head = format!("HEAD {path} HTTP/1.1\r\nhost: localhost");
        for answer in [whole, gateway.ask(&head).await] {
            let length = answer.head.contains("content-length");
            assert!(answer.status == 200 && !length, "{path}: {}", answer.head);
        }
    }
}
