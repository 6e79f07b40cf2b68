//! Addresses and pooled connections that die without a word, by a packet filter in a network
//! namespace. Each test runs one of the ignored tests in such a namespace.

use std::{
    env,
    io::{self, Write as _},
    process::Command,
    time::Duration,
};

use futures_util::future::join_all;
use http::Request;
use tokio::time::{Instant, sleep};
use tower_tds::{Client, Limits, Quota, layers::limits::Rules};

use crate::client::{
    raw::{Act, Raw, answer, say},
    world::{Built as _, SECOND, at_once, count, head, read},
};

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

/// The last in the order of RFC 6724, because its bits are the least like those of 127.0.0.1.
const ADDRESS: &str = "127.0.0.4";

/// Calls over three new connections, each with a deadline. All addresses before the last are dead.
///
/// The kernel gives a dead address up after two minutes. How much of a second each one costs is shown under paused time, in
/// `src/http/addresses/tests.rs`.
#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_dead_addresses() {
    let raw = Raw::of(|_| vec![say(answer("200 OK", "ok")), Act::Close]);
    let raw = raw.listen(ADDRESS).await;
    let dead = ["-m", "iprange", "--dst-range", "127.0.0.1-127.0.0.3"];
    drop_packets(&[&["--dport", raw.port()][..], &dead].concat());
    let url = raw.url.replace(ADDRESS, "localhost");
    let client = raw.builder_of(&url).built();
    for _ in 0..3 {
        let call = client.get("/close").deadline(DEADLINE);
        read(call).await.expect("a living address");
    }
    assert_eq!(raw.seen(), ["POST", "t1", "t1", "t1"]);
}

#[test]
fn dead_addresses_before_a_living_one_delay_no_call_beyond_its_deadline() {
    let hosts = [1, 2, 3, 4].map(|n| format!("127.0.0.{n} localhost\\n"));
    in_a_namespace("inside_dead_addresses", &hosts.concat());
}

/// A server, and a client with a wide quota.
async fn wide() -> (Raw, Client) {
    let raw = Raw::start(|asked| {
        let wait = u64::from(asked.head.contains(" /late ")) * 300;
        let ok = say(answer("200 OK", "ok"));
        vec![Act::Wait(Duration::from_millis(wait)), ok]
    });
    let raw = raw.await;
    let quota = Quota::new(count(1_000), SECOND).expect("a second");
    let limits = Limits::new(quota).rules(Rules::window());
    let client = raw.builder().limits(limits).built();
    (raw, client)
}

/// The same, once that many connections are idle and dead, because a NAT has forgotten them. New ones work.
async fn dead(connections: usize) -> (Raw, Client) {
    let (raw, client) = wide().await;
    // Connects are slow on a busy machine, and a client waits as long as is usual, so this goes on until the service is quick.
    let ports = loop {
        let begun = Instant::now();
        let heads = at_once((0..connections).map(|_| head(client.get("/")))).await;
        for head in heads {
            let body = head.expect("it is answered").bytes().await;
            body.expect("all");
        }
        let ports = ports_to(&raw);
        if ports.len() == connections && begun.elapsed() < SECOND / 3 {
            break ports;
        }
    };
    for some in ports.chunks(15) {
        let some = some.join(",");
        // Connections of other tests may have the same ports on this side.
        drop_packets(&["--dport", raw.port(), "-m", "multiport", "--sports", &some]);
        drop_packets(&["--sport", raw.port(), "-m", "multiport", "--dports", &some]);
    }
    (raw, client)
}

async fn ten_connections_that_died_fail_one_user() {
    let (_raw, client) = dead(10).await;
    let mut failed = Vec::new();
    for _ in 0..10 {
        failed.extend(client.get("/").deadline(DEADLINE).await.err());
    }
    assert_eq!(failed.len(), 1, "{failed:?}");
}

/// The callers that meet dead connections get their data once the kernel gives those connections up; later ones meet
/// none.
async fn forty_connections_that_died_fail_no_patient_user() {
    let (_raw, client) = dead(40).await;
    let callers = [(0, 40), (2, 5), (4, 5), (8, 5)].map(|caller| [caller; 10]);
    let callers = callers.concat().into_iter().map(|(begins, deadline)| {
        let call = read(client.get("/").deadline(SECOND * deadline));
        Box::pin(async move {
            sleep(SECOND * begins).await;
            let called = call.await.map(drop).map_err(|error| error.to_string());
            assert_eq!(called, Ok(()), "after {begins} s");
        }) as _
    });
    at_once::<()>(callers).await;
}

#[tokio::test]
#[ignore = "it runs in a network namespace"]
async fn inside_pools_that_died() {
    let ten = ten_connections_that_died_fail_one_user();
    tokio::join!(ten, forty_connections_that_died_fail_no_patient_user());
}

#[test]
fn dead_pool_fails_one_user_at_most_and_none_whose_deadline_is_longer_than_the_kernels() {
    in_a_namespace("inside_pools_that_died", LOCAL);
}

/// Calls on warm connections before and within a stall, with as many connections idle beside them.
/// A POST is sent once, so that none may be lost by the rule for silent networks.
async fn calls_through_a_stall(length: Duration) {
    let (raw, client) = wide().await;
    let begin = |number: usize| {
        let calls = (0..number).map(|nth| {
            let method = if nth % 2 == 0 { "POST" } else { "GET" };
            let call = Request::builder().method(method).uri("/late").body("");
            read(client.request(call.expect("a request")))
        });
        tokio::spawn(at_once(calls.collect::<Vec<_>>()))
    };
    for warm in begin(40).await.expect("no panic") {
        warm.expect("the network is calm");
    }
    let before = raw.seen().len();
    let first = begin(10);
    sleep(Duration::from_millis(100)).await;
    let ways = ["--dport", "--sport"].map(|side| [side, raw.port()]);
    ways.iter().for_each(|way| drop_packets(way));
    let second = begin(10);
    sleep(length).await;
    ways.iter().for_each(|way| let_packets_through(way));
    for calls in [first, second] {
        for called in calls.await.expect("no panic") {
            assert_eq!(called.expect("it is only late"), "ok", "{length:?}");
        }
    }
    let seen = raw.seen().len() - before;
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
    in_a_namespace("inside_stalls", LOCAL);
}

#[tokio::test]
async fn server_that_reads_nothing_for_six_seconds_gets_the_whole_upload() {
    let wait = || Act::Wait(SECOND * 6);
    let raw = Raw::start(move |_| vec![wait(), say(answer("200 OK", "ok"))]).await;
    // More than the buffers of both kernels.
    let upload = Request::post("/").body(vec![b'x'; 32 << 20]);
    let answer = raw.client().request(upload.expect("a request"));
    let answer = read(answer).await.expect("the window opens again");
    assert_eq!(answer, "ok");
    assert_eq!(raw.seen(), ["POST", "t1"]);
}

const LOCAL: &str = "127.0.0.1 localhost\\n";

/// Long enough for a machine that stalls, and shorter than the 11 s after which a call on a dead connection uses a new one.
const DEADLINE: Duration = Duration::from_secs(8);

/// This side's ports of the open connections to a server.
fn ports_to(raw: &Raw) -> Vec<String> {
    let port: u16 = raw.port().parse().expect("a number");
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
