//! Access: the requests that are let in, and the response to a page or a foreign host.

use std::{
    io::{BufRead, BufReader},
    thread,
};

use tds_sim::Config;
use tokio::{
    sync::oneshot,
    time::{Duration, timeout},
};

use crate::{
    Bench, by, err,
    serving::Serving,
    upstream::{Upstream, answer},
};

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
async fn that_nobody_new_is_let_in_is_said() {
    let bench = Bench::new("gateway-files", Config::default()).await;
    let plain = bench.gateway(&[]);
    let mut few = by("sh", &["-c", "ulimit -n 64; exec \"$@\"", "sh"], &plain);
    few.arg(plain.get_program()).args(plain.get_args());
    few.stderr(std::process::Stdio::piped());
    let mut run = few.spawn().expect("it starts");
    let mut says = BufReader::new(run.stderr.take().expect("it is piped")).lines();
    let first = says.next().expect("it says").expect("text");
    let (_, address) = first
        .split_once("listening on http://")
        .expect("the address");
    let idle: Vec<_> = (0..100)
        .map(|_| std::net::TcpStream::connect(address).expect("it listens"))
        .collect();
    // A thread of its own, for which no runtime waits.
    let (sender, said) = oneshot::channel();
    thread::spawn(move || sender.send(says.next().expect("it says").expect("text")));
    let said = timeout(Duration::from_secs(30), said).await;
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    let said = said.expect("it says").expect("no panic");
    assert!(said.contains("nobody new is let in"), "{said}");
    assert!(said.contains("open files"), "{said}");
    drop(idle);
}

#[tokio::test]
async fn an_error_that_echoes_the_token_gives_it_to_nobody() {
    let bench = Bench::new("gateway-error", Config::default()).await;
    let upstream = Upstream::start(|head, nth| {
        let sent = head
            .lines()
            .find_map(|line| line.strip_prefix("authorization: "));
        let body = format!("{{\"error\":\"you sent {}\"}}", sent.unwrap_or_default());
        let status = [
            "400 Bad Request",
            "403 Forbidden",
            "404 Not Found",
            "500 Internal Server Error",
        ];
        let headers = format!(
            "content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        answer(status[nth.min(3)], &headers, body.as_bytes())
    });
    let mut gateway = bench.gateway(&[]);
    gateway.env("TDS_BASE_URL", &upstream.url);
    let gateway = Serving::start(gateway);
    for n in 0..4 {
        let answer = gateway.get(&format!("/{n}")).await;
        assert!(answer.status >= 400, "{}", answer.head);
        let all = format!("{}{}", answer.head, answer.text());
        assert!(!all.to_lowercase().contains("eyj"), "{all}");
    }
    assert!(
        upstream
            .heads()
            .concat()
            .contains("authorization: Bearer ey")
    );
}
