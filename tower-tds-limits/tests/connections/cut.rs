//! A cut of the network, by a packet filter in a network namespace of its own.
//!
//! Each test runs one of the ignored tests in such a namespace. The short cuts run by default, and
//! those of 20 s by
//! `cargo test -p tower-tds-limits --test connections cut_of_twenty -- --ignored --nocapture`

use std::{
    env,
    io::{self, Write as _},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, ServiceBuilder};
use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits, RequestLimitLayer};

use crate::get;

/// Prints a line that the test harness does not capture.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}

/// Runs an ignored test in a network namespace, unless the machine makes none.
fn in_a_namespace(test: &str) {
    let unshare = |command: &str| {
        let mut unshare = Command::new("unshare");
        let path = format!("PATH=$PATH:/usr/sbin:/sbin; {command}");
        unshare.args(["-rn", "sh", "-c", &path]);
        unshare
    };
    let needs = unshare("ip link set lo up && iptables -L -n").output();
    if !needs.is_ok_and(|needs| needs.status.success()) {
        say("SKIPPED: there is no unshare, ip or iptables that may be used");
        return;
    }
    let program = env::current_exe().expect("a test has one");
    let command = format!(
        "ip link set lo up && exec '{}' --exact {test} --ignored --nocapture",
        program.display()
    );
    let ran = unshare(&command).status().expect("it was there");
    assert!(ran.success(), "{test}");
}

/// Cuts the network to and from a port, or heals it.
fn filter(action: &str, port: u16) {
    for side in ["--dport", "--sport"] {
        let mut filter = Command::new("iptables");
        let rule = [
            action,
            "INPUT",
            "-p",
            "tcp",
            side,
            &port.to_string(),
            "-j",
            "DROP",
        ];
        let done = filter.args(rule).status().expect("it was found");
        assert!(done.success());
    }
}

/// What a server saw: its requests, and its sockets from the accept until the client's end.
#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<Instant>>,
    open: AtomicU32,
    most: AtomicU32,
}

// === impl Seen ===

impl Seen {
    /// The most requests in any second.
    fn largest_second(&self) -> usize {
        let requests = self.requests.lock().expect("no panic");
        let within = |from: Instant| {
            let second = requests.iter().filter(|at| **at >= from);
            second.take_while(|at| **at < from + SECOND).count()
        };
        requests.iter().map(|at| within(*at)).max().unwrap_or(0)
    }
}

/// Starts a server whose bodies take so long.
async fn start(bodies: Duration) -> (Uri, u16, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let seen = Arc::<Seen>::default();
    let sees = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("loopback accepts");
            let open = sees.open.fetch_add(1, SeqCst) + 1;
            sees.most.fetch_max(open, SeqCst);
            let seen = Arc::clone(&sees);
            tokio::spawn(async move {
                serve(&mut socket, bodies, &seen).await.ok();
                seen.open.fetch_sub(1, SeqCst);
            });
        }
    });
    let uri = format!("http://127.0.0.1:{port}/").parse().expect("a URI");
    (uri, port, seen)
}

async fn serve(socket: &mut TcpStream, bodies: Duration, seen: &Seen) -> io::Result<()> {
    let mut head = Vec::new();
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            if socket.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        head.clear();
        seen.requests.lock().expect("no panic").push(Instant::now());
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nbus")
            .await?;
        sleep(bodies).await;
        socket.write_all(b" 307").await?;
    }
}

/// A stack of the bare layers, as the README builds it: what tasks with a timeout of three seconds
/// do to a server before, in and after a cut.
async fn through_a_cut(bodies: Duration, lost_after: Duration, cut: Duration) -> Arc<Seen> {
    let (uri, port, seen) = start(bodies).await;
    let limits = Limits::default().lost_after(lost_after);
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(limits.lost_after));
    let limiter = Limiter::new(limits);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(tcp);
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(client);
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let (service, uri) = (service.clone(), uri.clone());
        calls.spawn(async move {
            loop {
                let call = get(service.clone(), uri.clone());
                if !timeout(3 * SECOND, call)
                    .await
                    .is_ok_and(|body| body.is_ok())
                {
                    sleep(SECOND / 10).await;
                }
            }
        });
    }
    sleep(4 * SECOND).await;
    let before = seen.requests.lock().expect("no panic").len();
    assert!(before > 50, "{before}");
    filter("-I", port);
    sleep(cut).await;
    filter("-D", port);
    sleep(3 * SECOND).await;
    say(&format!(
        "a cut of {cut:?}: at most {} sockets and {} requests in a second; {before} requests \
         before, {} after; {:?}",
        seen.most.load(SeqCst),
        seen.largest_second(),
        seen.requests.lock().expect("no panic").len() - before,
        limiter.snapshot(),
    ));
    seen
}

async fn assert_within_the_limits(bodies: Duration, lost_after: u64, cut: u64) {
    let [lost_after, cut] = [lost_after, cut].map(Duration::from_secs);
    let seen = through_a_cut(bodies, lost_after, cut).await;
    assert!(seen.most.load(SeqCst) <= 60, "{}", seen.most.load(SeqCst));
    assert!(seen.largest_second() <= 50, "{}", seen.largest_second());
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_short_cut_with_bodies() {
    assert_within_the_limits(BODIES, 2, 9).await;
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_short_cut_with_quick_responses() {
    assert_within_the_limits(Duration::ZERO, 2, 9).await;
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_long_cut_with_bodies() {
    assert_within_the_limits(BODIES, 10, 20).await;
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_long_cut_with_quick_responses() {
    assert_within_the_limits(Duration::ZERO, 10, 20).await;
}

/// Runs two at once, because each mostly waits.
fn both(lasts: &'static str) {
    let names =
        ["bodies", "quick_responses"].map(|what| format!("cut::inside_a_{lasts}_cut_with_{what}"));
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| in_a_namespace(name));
        }
    });
}

#[test]
fn short_cut_leaves_the_limits_of_sockets_and_requests_intact() {
    both("short");
}

#[test]
#[ignore = "half a minute; see the head of this file"]
fn cut_of_twenty_seconds_leaves_the_limits_intact() {
    both("long");
}

const SECOND: Duration = Duration::from_secs(1);

const BODIES: Duration = Duration::from_millis(1_200);
