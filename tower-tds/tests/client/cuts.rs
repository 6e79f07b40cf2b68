//! Addresses and pooled connections that die without a word, by a packet filter in a network
//! namespace. Each test runs one of the ignored tests in such a namespace.

use std::{
    env,
    io::{self, Write as _},
    mem,
    num::NonZeroU32,
    process::Command,
    time::Duration,
};

use futures_util::future::join_all;
use http::{Method, Request};
use tokio::{task::JoinSet, time::sleep};
use tower_tds::{Builder, Client, Credentials, Limits, Quota, layers::limits::Rules};

use crate::client::server::Server;

/// Runs an ignored test in a namespace where `localhost` has these addresses, unless the machine
/// cannot make one.
fn in_a_namespace(test: &str, hosts: &str) {
    let unshare = |command: &str| {
        let mut unshare = Command::new("unshare");
        let path = format!(
            "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up && mount -t tmpfs none /mnt \
             && printf '{hosts}' >/mnt/hosts && mount --bind /mnt/hosts /etc/hosts && {command}"
        );
        unshare.args(["-rnm", "sh", "-c", &path]);
        unshare
    };
    let needs = unshare("iptables -L -n").output();
    if !needs.is_ok_and(|needs| needs.status.success()) {
        let line = "SKIPPED: there is no unshare, ip, mount or iptables that may be used";
        writeln!(io::stderr(), "{line}").ok();
        return;
    }
    let program = env::current_exe().expect("a test has one");
    let command = format!(
        "exec '{}' --exact client::cuts::{test} --ignored --nocapture",
        program.display()
    );
    let ran = unshare(&command).output().expect("it was there");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{test}: {said}");
}

/// Drops each packet that fits.
fn drop_packets(of: &[&str]) {
    filter("-I", of);
}

/// Ends the [`drop_packets`] of the same packets.
fn let_packets_through(of: &[&str]) {
    filter("-D", of);
}

fn filter(change: &str, of: &[&str]) {
    let mut filter = Command::new("iptables");
    // Several tests change the table at once.
    filter.args(["-w", change, "INPUT", "-p", "tcp"]).args(of);
    let done = filter.args(["-j", "DROP"]).status();
    assert!(done.expect("it was found").success());
}

fn builder(url: &str) -> Builder {
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    Client::builder(url, url, credentials).loopback_http()
}

const SECOND: Duration = Duration::from_secs(1);

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The last in the order of RFC 6724, because its bits are the least like those of 127.0.0.1.
const ADDRESS: &str = "127.0.0.4";

/// Calls over three new connections, each with a deadline. All addresses before the last are dead.
///
/// The kernel gives a dead address up after two minutes. How much of a second each one costs is shown under paused time, in
/// `src/http/addresses/tests.rs`.
async fn calls_to_localhost() {
    let server = Server::start_at(ADDRESS, ANSWER).await;
    let dead = ["-m", "iprange", "--dst-range", "127.0.0.1-127.0.0.3"];
    drop_packets(&[&["--dport", &server.port()][..], &dead].concat());
    let url = server.url().replace(ADDRESS, "localhost");
    let client = builder(&url).build().expect("loopback is let through");
    for _ in 0..3 {
        let call = client.get("/close").deadline(DEADLINE).await;
        call.expect("a living address").bytes().await.expect("all");
    }
    assert_eq!(server.seen(), ["POST", "t1", "t1", "t1"]);
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_one_dead_address_of_two() {
    calls_to_localhost().await;
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_three_dead_addresses_of_four() {
    calls_to_localhost().await;
}

#[test]
fn dead_address_of_two_delays_no_call_beyond_its_deadline() {
    let hosts = "127.0.0.1 localhost\\n127.0.0.4 localhost\\n";
    in_a_namespace("inside_one_dead_address_of_two", hosts);
}

#[test]
fn three_dead_addresses_of_four_delay_no_call_beyond_its_deadline() {
    let hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3", ADDRESS];
    let hosts = hosts
        .map(|address| format!("{address} localhost\\n"))
        .concat();
    in_a_namespace("inside_three_dead_addresses_of_four", &hosts);
}

/// Ten connections of the pool die, because a NAT has forgotten them, and new ones work.
#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_a_pool_that_died() {
    let server = Server::start(ANSWER).await;
    let limits = Limits::default().rules(Rules::window());
    let client = builder(&server.url()).limits(limits).build();
    let client = client.expect("loopback is let through");
    let mut heads = JoinSet::new();
    for _ in 0..10 {
        let call = client.get("/");
        heads.spawn(async move { call.await.expect("it is answered") });
    }
    for head in heads.join_all().await {
        head.bytes().await.expect("all");
    }
    let ports = ports_to(&server);
    assert_eq!(ports.len(), 10);
    drop_packets(&["-m", "multiport", "--ports", &ports.join(",")]);
    // The connections that are made from now on live.
    let mut failed = 0;
    for _ in 0..10 {
        let call = client.get("/").deadline(DEADLINE);
        failed += u32::from(call.await.is_err());
    }
    assert_eq!(failed, 1);
}

/// Forty connections of the pool die. The callers that meet them get their data once the kernel gives those
/// connections up; later ones meet none.
#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_forty_connections_that_died() {
    let server = Server::start(ANSWER).await;
    let wide = Quota::new(
        NonZeroU32::new(1_000).expect("many"),
        Duration::from_secs(1),
    );
    let limits = Limits::new(wide.expect("a second")).rules(Rules::window());
    let client = builder(&server.url()).limits(limits).build();
    let client = client.expect("loopback is let through");
    let mut heads = JoinSet::new();
    for _ in 0..40 {
        let call = client.get("/");
        heads.spawn(async move { call.await.expect("it is answered") });
    }
    for head in heads.join_all().await {
        head.bytes().await.expect("all");
    }
    let ports = ports_to(&server);
    assert_eq!(ports.len(), 40);
    for some in ports.chunks(15) {
        drop_packets(&["-m", "multiport", "--ports", &some.join(",")]);
    }
    let mut callers = JoinSet::new();
    for (begins, deadline) in [(0, 40), (2, 5), (4, 5), (8, 5)] {
        let [begins, deadline] = [begins, deadline].map(Duration::from_secs);
        for _ in 0..10 {
            let client = client.clone();
            callers.spawn(async move {
                sleep(begins).await;
                let call = client.get("/").deadline(deadline).await;
                (begins, call.map(drop).map_err(|error| error.to_string()))
            });
        }
    }
    for (begins, called) in callers.join_all().await {
        assert_eq!(called, Ok(()), "after {begins:?}");
    }
}

#[test]
fn forty_dead_connections_fail_no_caller_whose_deadline_is_longer_than_the_kernels() {
    let hosts = "127.0.0.1 localhost\\n";
    in_a_namespace("inside_forty_connections_that_died", hosts);
}

/// Calls on warm connections before and within a stall, with as many connections idle beside them.
/// A POST is sent once, so that none may be lost by the rule for silent networks.
async fn calls_through_a_stall(length: Duration) {
    let server = Server::start(ANSWER).await;
    let wide = Quota::new(NonZeroU32::new(1_000).expect("many"), SECOND).expect("a second");
    let limits = Limits::new(wide).rules(Rules::window());
    let client = server.builder().limits(limits).build();
    let client = client.expect("loopback is let through");
    let mut calls = JoinSet::new();
    let begin = |calls: &mut JoinSet<_>, number: usize| {
        for nth in 0..number {
            let method = if nth % 2 == 0 {
                Method::POST
            } else {
                Method::GET
            };
            let call = Request::builder().method(method).uri("/late/300").body("");
            let call = client.request(call.expect("a request"));
            calls.spawn(async move { call.await?.bytes().await });
        }
    };
    begin(&mut calls, 40);
    for warm in mem::take(&mut calls).join_all().await {
        warm.expect("the network is calm");
    }
    let before = server.seen().len();
    let port = server.port();
    begin(&mut calls, 10);
    sleep(Duration::from_millis(100)).await;
    let ways = ["--dport", "--sport"].map(|side| [side, &port]);
    ways.iter().for_each(|way| drop_packets(way));
    begin(&mut calls, 10);
    sleep(length).await;
    ways.iter().for_each(|way| let_packets_through(way));
    for called in calls.join_all().await {
        assert_eq!(called.expect("it is only late"), "ok", "{length:?}");
    }
    let seen = server.seen().len() - before;
    assert_eq!(seen, 20, "{length:?}: each was sent once");
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_stalls() {
    let stalls = [2, 4, 6].map(|secs| calls_through_a_stall(SECOND * secs));
    join_all(stalls).await;
}

#[test]
fn stalls_of_two_to_six_seconds_lose_no_call() {
    in_a_namespace("inside_stalls", "127.0.0.1 localhost\\n");
}

#[tokio::test]
async fn server_that_reads_nothing_for_nine_seconds_gets_the_whole_upload() {
    let server = Server::start(ANSWER).await;
    let client = server.builder().build().expect("loopback is let through");
    // More than the buffers of both kernels.
    let upload = Request::post("/pause/9").body(vec![b'x'; 32 << 20]);
    let answer = client.request(upload.expect("a request")).await;
    let answer = answer.expect("the window opens again").bytes().await;
    assert_eq!(answer.expect("a body"), "ok");
    assert_eq!(server.seen(), ["POST", "t1"]);
}

/// Long enough for a machine that stalls, and shorter than the 11 s after which a call on a dead connection uses a new one.
const DEADLINE: Duration = Duration::from_secs(8);

/// This side's ports of the open connections to a server.
fn ports_to(server: &Server) -> Vec<String> {
    let port: u16 = server.port().parse().expect("a number");
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").expect("it is Linux");
    let to = format!(":{port:04X}");
    let open = sockets.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (here, there, state) = (fields.next()?, fields.next()?, fields.next()?);
        (there.ends_with(&to) && state == "01").then_some(here)
    });
    let port_of = |here: &str| {
        let (_, port) = here.rsplit_once(':').expect("a port");
        u16::from_str_radix(port, 16)
            .expect("hexadecimal")
            .to_string()
    };
    open.map(port_of).collect()
}

#[test]
fn dead_pool_fails_one_user_at_most() {
    in_a_namespace("inside_a_pool_that_died", "127.0.0.1 localhost\\n");
}
