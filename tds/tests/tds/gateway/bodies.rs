//! Bodies and connections: streams, lengths, and clients that do not read.

use tds_sim::{Config, Outcome};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Duration, timeout},
};

use crate::{
    Bench, HANGS, live,
    serving::Serving,
    upstream::{Upstream, answer},
};

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

    // A slow response is not cut: its client reads.
    let target = "/v1/history/slow?bytes=200000&rate=100000";
    let slow = gateway.get(target).await;
    assert_eq!((slow.status, slow.body.len()), (200, 200_000));
}

#[tokio::test]
async fn who_reads_slowly_is_not_cut() {
    let bench = Bench::new("gateway-slow", Config::default()).await;
    let gateway = Serving::start(bench.gateway(&["--unread", "2s", "--deadline", "60s"]));
    // The system keeps little for this reader, so that what it has not read is the gateway's to send.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("a size");
    let mut stream = socket.connect(gateway.address).await.expect("it listens");
    let head = "GET /v1/history/all?bytes=2500000 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let (mut piece, mut got) = ([0; 25_000], 0);
    loop {
        match stream.read(&mut piece).await.expect("nobody cuts it") {
            0 => break,
            length => got += length,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(got > 2_500_000, "{got}");
}

/// The bytes that arrive on a connection with this single write, until the gateway closes it.
async fn closed_after(gateway: &Serving, sent: &[u8]) -> String {
    let stream = TcpStream::connect(gateway.address).await;
    let mut stream = stream.expect("it listens");
    stream.write_all(sent).await.expect("it reads");
    let mut answer = Vec::new();
    // A reset is an end as well.
    let read = timeout(HANGS, stream.read_to_end(&mut answer)).await;
    drop(read.expect("it closes it"));
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
#[ignore = "15 s"]
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
        // A chunk of no bytes would mark it as whole.
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

/// A client that resumes a file takes a 416 for its end.
#[tokio::test]
async fn a_416_that_may_be_about_sockets_is_none_to_a_program() {
    let bench = Bench::new("gateway-416", Config::default()).await;
    let upstream = Upstream::start(|head, _| {
        let whole = match head.split(' ').nth(1) {
            Some("/whole") => "content-range: bytes */10\r\n",
            _ => "",
        };
        let headers = format!("content-length: 0\r\n{whole}");
        answer("416 Range Not Satisfiable", &headers, b"")
    });
    let mut gateway = bench.gateway(&[]);
    gateway.env("TDS_BASE_URL", &upstream.url);
    let gateway = Serving::start(gateway);
    for (path, status) in [("/whole", 416), ("/half", 503)] {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nrange: bytes=10-");
        let answer = gateway.ask(&head).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
}
