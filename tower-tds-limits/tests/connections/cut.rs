//! A cut of the network, by a packet filter in a network namespace of its own.
//!
//! The test runs the ignored ones in such a namespace.

use std::{
    env,
    io::{self, Write as _},
    num::NonZeroU32,
    process::Command,
    sync::{Arc, Mutex},
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
    net::TcpStream,
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, ServiceBuilder};
use tower_tds_limits::{
    ConnectionLimit, ConnectionLimitLayer, Limiter, Limits, RequestLimit, RequestLimitLayer, Rules,
};

use crate::connections::{
    ends::connect,
    get,
    listen::{Accepted, listen},
};

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
        "ip link set lo up && exec '{}' --exact connections::{test} --ignored --nocapture",
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

/// The requests that a server saw.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<Instant>>>);

// === impl Seen ===

impl Seen {
    fn requests(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    /// The most requests in any second.
    fn largest_second(&self) -> usize {
        let requests = self.0.lock().expect("no panic");
        let within = |from: Instant| {
            let second = requests.iter().filter(|at| **at >= from);
            second.take_while(|at| **at < from + SECOND).count()
        };
        requests.iter().map(|at| within(*at)).max().unwrap_or(0)
    }
}

/// Starts a server whose bodies take this long.
async fn start(bodies: Duration) -> (Uri, u16, Seen, Arc<Accepted>) {
    let seen = Seen::default();
    let sees = seen.clone();
    let (address, accepted) = listen(move |socket| serve(socket, bodies, sees.clone())).await;
    let uri = format!("http://{address}/").parse().expect("a URI");
    (uri, address.port(), seen, accepted)
}

async fn serve(mut socket: TcpStream, bodies: Duration, seen: Seen) -> io::Result<()> {
    let mut head = Vec::new();
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            if socket.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        head.clear();
        seen.0.lock().expect("no panic").push(Instant::now());
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nbus")
            .await?;
        sleep(bodies).await;
        socket.write_all(b" 307").await?;
    }
}

type Stack = RequestLimit<Client<ConnectionLimit<HttpConnector>, Empty<Bytes>>>;

/// The bare layers, as the README puts them together.
fn stack(limits: Limits) -> (Stack, Limiter) {
    let mut tcp = HttpConnector::new();
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(limits.tcp_user_timeout()));
    let limiter = Limiter::new(limits);
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(tcp);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let layers = ServiceBuilder::new().layer(RequestLimitLayer::new(limiter.clone()));
    (layers.service(client), limiter)
}

/// Makes 50 calls at once, and returns how many were answered in time.
async fn fifty(stack: &Stack, uri: &Uri, patience: Duration) -> usize {
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        calls.spawn(timeout(patience, get(stack.clone(), uri.clone())));
    }
    let calls = calls.join_all().await.into_iter();
    calls.filter(|call| matches!(call, Ok(Ok(_)))).count()
}

/// All sockets are in use when the network is cut, and callers give up.
async fn with_bodies(lost_after: u64, cut: u64) {
    let [lost_after, cut] = [lost_after, cut].map(Duration::from_secs);
    let (uri, port, seen, accepted) = start(Duration::from_millis(1_200)).await;
    let (stack, limiter) = stack(Limits::default().lost_after(lost_after));
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let (stack, uri) = (stack.clone(), uri.clone());
        calls.spawn(async move {
            loop {
                let call = timeout(3 * SECOND, get(stack.clone(), uri.clone())).await;
                if !call.is_ok_and(|body| body.is_ok()) {
                    sleep(SECOND / 10).await;
                }
            }
        });
    }
    sleep(4 * SECOND).await;
    let before = seen.requests();
    filter("-I", port);
    sleep(cut).await;
    filter("-D", port);
    sleep(5 * SECOND).await;
    let (most, largest) = (accepted.most(), seen.largest_second());
    say(&format!(
        "a cut of {cut:?}: at most {most} sockets, {largest} requests in a second; {before} \
         requests before, {} after; {limiter:?}",
        seen.requests() - before,
    ));
    assert!(before > 50, "{before}");
    assert!(most <= 60, "{most}");
    assert!(largest <= 50, "{largest}");
}

/// The calls of an idle pool are written into the cut and given up, and later ones follow when it
/// has healed. A socket's kernel resends after 6.2 and 12.6 s.
async fn with_an_idle_pool(lost_after: u64, cut: u64) {
    let [lost_after, cut] = [lost_after, cut].map(Duration::from_secs);
    let (uri, port, seen, accepted) = start(2 * SECOND).await;
    // A whole quota at once, each request on a socket of its own.
    let many = NonZeroU32::new(200).expect("it is not zero");
    let limits = Limits::default().rules(Rules::window()).connections(many);
    let (stack, _limiter) = stack(limits.lost_after(lost_after));
    assert_eq!(fifty(&stack, &uri, 5 * SECOND).await, 50);
    assert_eq!(accepted.most(), 50);
    filter("-I", port);
    let healed = async {
        sleep(cut).await;
        filter("-D", port);
        fifty(&stack, &uri, 5 * SECOND).await
    };
    let (lost, answered) = tokio::join!(fifty(&stack, &uri, SECOND), healed);
    say(&format!(
        "a cut of {cut:?}: {lost} and then {answered} answered, {} requests in a second",
        seen.largest_second(),
    ));
    assert_eq!((lost, answered), (0, 50));
    assert_eq!((seen.requests(), seen.largest_second()), (100, 50));
}

/// Both ends of a connection are lost in the cut. When it has healed, the server's comes at once, and this side's only when its
/// kernel sends it for the sixth time.
#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_short_cut_of_both_ends() {
    // Leaks a few bytes, which is no harm in a test.
    let ends: &Notify = Box::leak(Box::default());
    let (address, accepted) = listen(move |mut socket| async move {
        ends.notified().await;
        socket.shutdown().await.expect("an open socket");
        socket.read_to_end(&mut Vec::new()).await
    })
    .await;
    let limiter = Limiter::new(Limits::default().connections(NonZeroU32::MIN));
    let first = connect(&limiter, address).await;
    filter("-I", address.port());
    drop(first);
    sleep(SECOND).await;
    ends.notify_one();
    sleep(SECOND * 5 / 2).await;
    filter("-D", address.port());
    let _second = connect(&limiter, address).await;
    while accepted.all() < 2 {
        sleep(SECOND / 100).await;
    }
    assert_eq!(accepted.most(), 1);
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_short_cut_with_bodies() {
    with_bodies(2, 9).await;
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_short_cut_with_an_idle_pool() {
    with_an_idle_pool(2, 6).await;
}

#[test]
fn short_cut_leaves_the_limits_of_sockets_and_requests_intact() {
    // All at once, because each mostly waits.
    std::thread::scope(|scope| {
        for what in ["with_bodies", "with_an_idle_pool", "of_both_ends"] {
            scope.spawn(move || in_a_namespace(&format!("cut::inside_a_short_cut_{what}")));
        }
    });
}

const SECOND: Duration = Duration::from_secs(1);
