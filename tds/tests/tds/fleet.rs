//! Jobs as members of a fleet, with a redis-server of the test's own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tds_sim::Config;
use tokio::time::{Duration, sleep, timeout};

use crate::{Bench, HANGS, err, out, output, signal, skipped, tds, text};

/// A redis-server on a socket in the folder of a bench, killed with its test.
pub(crate) struct Store(Child);

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Store {
    /// Returns its address, or `None` if the program is not installed.
    pub(crate) fn start(bench: &Bench, password: &str) -> Option<(Self, String)> {
        if skipped("redis-server") {
            return None;
        }
        let socket = bench.path("redis.sock");
        let mut server = Command::new("redis-server");
        server.args(["--port", "0", "--save", "", "--unixsocket", text(&socket)]);
        server.args(["--dir", text(&bench.folder), "--requirepass", password]);
        let mut server = server.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(server.stdout.take().expect("it is piped")).lines();
        let is_ready = |line: &str| line.contains("eady to accept connections");
        assert!(lines.any(|line| is_ready(&line.expect("text"))));
        std::thread::spawn(move || lines.for_each(drop));
        Some((Self(server), format!("redis+unix://{}", socket.display())))
    }
}

/// The members in `tds fleet status`, by its lines.
async fn members(store: &str) -> Vec<String> {
    let run = output(tds(&[
        "fleet",
        "status",
        "--fleet",
        store,
        "--fleet-name",
        "buses",
    ]))
    .await;
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    let table = out(&run);
    let lines: Vec<_> = table.lines().collect();
    let [head, members @ ..] = &lines[..] else {
        unreachable!("no table: {table}");
    };
    assert!(head.starts_with("member "), "{table}");
    members.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test]
async fn two_jobs_of_a_fleet_keep_the_limits_and_share_a_token_and_a_signal_leaves_the_fleet() {
    let bench = Bench::new("fleet", Config::default()).await;
    let Some((_store, store)) = Store::start(&bench, "") else {
        return;
    };
    let fleet = ["--fleet", &store, "--fleet-name", "buses"];
    let mut jobs = Vec::new();
    for name in ["a", "b"] {
        let list = bench.path(name);
        fs::write(&list, format!("/v1/live/{name}-{{1..150}}\n")).expect("a file");
        let files = bench.path(&format!("files-{name}"));
        let bulk = ["bulk", "--list", text(&list), "--out", text(&files)];
        let mut bulk = bench.tds(&[&bulk[..], &fleet].concat());
        // Machines of a fleet have no folder in common.
        bulk.env("TDS_STATE_DIR", bench.path(&format!("state-{name}")));
        jobs.push(tokio::spawn(output(bulk)));
    }
    bench.seen(|seen| seen.complete > 20).await;
    let processes = members(&store).await;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
    let is_named = |line: &String| line.contains(&format!(" {}:", host.trim()));
    assert_eq!(processes.len(), 2);
    assert!(processes.iter().all(is_named), "{processes:?}");
    for job in jobs {
        let run = job.await.expect("no panic");
        assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    }
    let seen = bench.server.ledger().summary();
    assert_eq!(seen.by_status, [(200, 300)].into());
    assert_eq!(seen.token_posts, 1, "{seen:?}");
    assert!(
        seen.largest_second <= 50 && seen.peak_sockets <= 60,
        "{seen:?}"
    );
    assert_eq!(members(&store).await, Vec::<String>::new());

    // The store knows the fleet now, so these begin at once.
    let check = bench
        .run(&[&["check", "/v1/live/bus"][..], &fleet].concat())
        .await;
    assert_eq!(check.status.code(), Some(0), "{}", err(&check));
    for line in [
        format!("TDS_FLEET_STORE        {store} (flag)"),
        "TDS_FLEET_NAME         buses (flag)".to_owned(),
        "fleet: 1 member, this one with 0 of 50 requests".to_owned(),
    ] {
        let is_there = out(&check).lines().any(|it| it == line);
        assert!(is_there, "{line}: {}", out(&check));
    }
    let feed = bench.path("feed");
    fs::write(&feed, "/v1/live/bus\n").expect("a file");
    let slow = "/v1/history/1?bytes=1000&rate=10";
    for (job, ends_with, is_slow) in [
        (vec!["get", slow], 128 + 15, true),
        (vec!["poll", "--list", text(&feed)], 0, false),
    ] {
        let before = bench.server.ledger().summary().data_calls;
        let child = crate::piped(bench.tds(&[&job[..], &fleet].concat()));
        let is_begun = |seen: &tds_sim::Summary| seen.data_calls > before;
        // The store keeps a permit of a call in flight until it cannot be used.
        bench
            .seen(|seen| is_begun(seen) && (is_slow || seen.in_progress == 0))
            .await;
        assert_eq!(members(&store).await.len(), 1);
        signal(&child, "-TERM");
        let run = crate::end(child).await;
        assert_eq!(run.status.code(), Some(ends_with), "{job:?} {}", err(&run));
        assert_eq!(members(&store).await, Vec::<String>::new(), "{job:?}");
    }
}

const UNREACHABLE: &str = "127.0.0.1:1: the store is unreachable: ";
const STEP: &str = "; start it or correct --fleet, or go on alone without it";

#[tokio::test]
async fn unreachable_fleet_store_ends_a_job_before_any_request() {
    let bench = Bench::new("fleet-faults", Config::default()).await;
    let list = bench.path("list");
    fs::write(&list, "/v1/live/bus\n").expect("a file");
    let files = bench.path("files");
    let bulk = ["bulk", "--list", text(&list), "--out", text(&files)];
    let mut cases = vec![
        ("redis://x:p4ssw0rd@127.0.0.1:1", "", 5, UNREACHABLE),
        ("nonsense", "", 2, "write redis://HOST:PORT"),
        (
            "redis://x:p4ssw0rd@nonsense:1:2/",
            "",
            2,
            "write redis://HOST:PORT",
        ),
        ("redis://127.0.0.1:1", "a b", 2, "a fleet's name is"),
    ];
    let store = Store::start(&bench, "p4ssw0rd");
    let (right, wrong) = match &store {
        Some((_, store)) => (
            format!("{store}?pass=p4ssw0rd"),
            format!("{store}?pass=wr0ng"),
        ),
        None => Default::default(),
    };
    if store.is_some() {
        cases.push((&wrong, "", 2, "refuses the user or the password"));
    }
    for (store, name, code, told) in cases {
        let mut run = bench.tds(&bulk);
        run.env("TDS_FLEET_STORE", store)
            .env("TDS_FLEET_NAME", name);
        let run = output(run).await;
        let err = err(&run);
        assert_eq!(run.status.code(), Some(code), "{store}: {err}");
        let last = err.lines().last().unwrap_or_default();
        assert!(last.contains(told), "{store}: {err}");
        assert!(told != UNREACHABLE || last.contains(STEP), "{err}");
        assert!(!err.contains("p4ssw0rd") && !err.contains("wr0ng"), "{err}");
    }
    // The same before the fault is final.
    let mut run = bench.tds(&["get", "/v1/live/bus", "--deadline", "1s"]);
    run.env("TDS_FLEET_STORE", "redis://x:p4ssw0rd@127.0.0.1:1");
    let run = output(run).await;
    assert_eq!(run.status.code(), Some(5), "{}", err(&run));
    assert!(err(&run).contains("the deadline passed"), "{}", err(&run));
    assert!(
        err(&run).contains(UNREACHABLE) && err(&run).contains(STEP),
        "{}",
        err(&run)
    );
    assert!(!err(&run).contains("p4ssw0rd"), "{}", err(&run));
    // An interval of an hour cannot be divided.
    let mut hour = bench.tds(&[&bulk[..], &["--rate", "1000/1h"]].concat());
    hour.env("TDS_FLEET_STORE", &right);
    let run = output(hour).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    let run = bench
        .run(&["get", "/v1/live/bus", "--fleet", "redis://x:p@127.0.0.1:1"])
        .await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    assert!(err(&run).contains("TDS_FLEET_STORE"), "{}", err(&run));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (0, 0));
}

/// Two nodes of a cluster on these ports, with one half of the slots each.
async fn cluster(bench: &Bench, ports: [u16; 2]) -> Vec<Store> {
    let mut nodes = Vec::new();
    for (port, slots) in ports.into_iter().zip(["0 8191", "8192 16383"]) {
        let folder = bench.path(&port.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        let mut node = Command::new("redis-server");
        node.args([
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--dir",
            text(&folder),
        ]);
        let node = node
            .args(["--cluster-enabled", "yes"])
            .stdout(Stdio::null());
        nodes.push(Store(node.spawn().expect("it starts")));
        let mut own = vec!["cluster", "addslotsrange"];
        own.extend(slots.split(' '));
        asked(port, &own, "OK").await;
    }
    let other = ports[1].to_string();
    asked(ports[0], &["cluster", "meet", "127.0.0.1", &other], "OK").await;
    for port in ports {
        asked(port, &["cluster", "info"], "cluster_state:ok").await;
    }
    nodes
}

/// Repeats a command until its answer has this text.
async fn asked(port: u16, words: &[&str], text: &str) {
    let asked = async {
        loop {
            let mut client = Command::new("redis-cli");
            client.args(["-p", &port.to_string()]).args(words);
            if out(&output(client).await).contains(text) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, asked).await.expect("the node answers");
}

#[tokio::test]
async fn a_node_of_a_cluster_works_if_it_has_the_fleets_keys_and_another_one_names_it() {
    let bench = Bench::new("fleet-cluster", Config::default()).await;
    if skipped("redis-server") {
        return;
    }
    let free = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    // A node's bus has its port and ten thousand.
    let ports = std::iter::repeat_with(free).map(|it| it.local_addr().expect("its own").port());
    let ports: Vec<_> = ports.filter(|port| *port < 55_000).take(2).collect();
    let _nodes = cluster(&bench, [ports[0], ports[1]]).await;
    // The key of this name is in the lower half.
    let [right, wrong] = [0, 1].map(|n| format!("redis://127.0.0.1:{}", ports[n]));
    for arguments in [
        &["get", "/v1/live/bus"][..],
        &["check", "/v1/live/bus"],
        &["fleet", "status"],
    ] {
        for (store, code) in [(&right, 0), (&wrong, 2)] {
            let run = bench.run(&[arguments, &["--fleet", store]].concat()).await;
            assert_eq!(
                run.status.code(),
                Some(code),
                "{arguments:?}: {}",
                err(&run)
            );
            let line = "give the address of the node that has it: Moved: 3538 ";
            let is_named = err(&run).contains(&(line.to_owned() + &right[8..]));
            assert_eq!(is_named, code == 2, "{arguments:?}: {}", err(&run));
        }
    }
    assert_eq!(bench.server.ledger().summary().token_posts, 2);
}

#[tokio::test]
async fn interrupt_ends_a_job_that_waits_for_its_share() {
    let bench = Bench::new("fleet-wait", Config::default()).await;
    let Some((_store, store)) = Store::start(&bench, "") else {
        return;
    };
    let list = bench.path("list");
    fs::write(&list, "/v1/live/bus\n").expect("a file");
    let files = bench.path("files");
    let bulk = ["bulk", "--list", text(&list), "--out", text(&files)];
    let fleet = ["--fleet", &store, "--fleet-name", "buses"];
    let child = crate::piped(bench.tds(&[&bulk[..], &fleet].concat()));
    let joined = async {
        while members(&store).await.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, joined).await.expect("it joins");
    signal(&child, "-INT");
    let run = crate::end(child).await;
    assert_eq!(run.status.code(), Some(1), "{}", err(&run));
    assert!(out(&run).contains("1 unfinished"), "{}", out(&run));
    assert_eq!(members(&store).await, Vec::<String>::new());
    assert_eq!(bench.server.ledger().summary().data_calls, 0);
}
