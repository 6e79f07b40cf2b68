//! `--fleet`: several processes, one quota and one token, and a store that is not there.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::Command,
};

use serde_json::Value;
use tds_sim::{Config, Delay, Network, Quota, Relay};
use tokio::{
    task::JoinSet,
    time::{Duration, sleep, timeout},
};
use tower_tds::Limits;
use tower_tds_fleet::Fleet;
use tower_tds_limits::{AskLease, Leases};

use crate::{
    Bench, HANGS, end, err, live, out, output, piped,
    redis_server::RedisServer,
    serving::{Answer, Serving},
    signal, text,
};

/// A store that knows that nothing was granted before it came.
async fn known(store: &RedisServer) {
    let fleet = Fleet::join(&store.url(), "tds", &Limits::default()).expect("a store");
    let mut ask = AskLease::default();
    ask.max_wait = Some(Duration::ZERO);
    let refused = fleet.lease(ask).await.expect_err("it grants nothing yet");
    assert!(refused.retry_after().is_some(), "{refused}");
    remembers(store);
}

/// What a store without memory comes to after half a minute.
fn remembers(store: &RedisServer) {
    // The fourth of its numbers says from when on it grants.
    let script = "local numbers = redis.call('HGET', KEYS[1], 'numbers') \
                  numbers = numbers:sub(1, 24) .. struct.pack('<d', 0) .. numbers:sub(33) \
                  redis.call('HSET', KEYS[1], 'numbers', numbers)";
    let mut eval = redis::cmd("EVAL");
    eval.arg(script).arg(1).arg(ACCOUNT);
    eval.exec(&mut store.connection()).expect("it is kept");
}

/// How many leases have not ended.
fn open(store: &RedisServer) -> u64 {
    // Their fields begin with this letter and a digit.
    let script = "local open = 0 \
                  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do \
                  if field:match('^l%d') then open = open + 1 end end return open";
    let mut eval = redis::cmd("EVAL");
    eval.arg(script).arg(1).arg(ACCOUNT);
    eval.query(&mut store.connection()).expect("it is there")
}

impl Bench {
    /// A part of a list, by a process of a fleet.
    fn part(&self, name: &str, store: &str, files: std::ops::Range<u32>) -> Command {
        let lines: String = files.map(|n| format!("/v1/live/bus-{n}\n")).collect();
        fs::write(self.path(name), lines).expect("a file");
        let (list, out) = (self.path(name), self.path(&format!("{name}-files")));
        let arguments = ["bulk", "--list", text(&list), "--out", text(&out)];
        let fleet = ["--fleet", store, "--processes", "2"];
        self.tds(&[&arguments[..], &fleet].concat())
    }
}

#[tokio::test]
async fn two_bulk_downloads_at_once_keep_one_quota_and_one_token() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let bench = Bench::new("fleet-bulk", Config::default()).await;
    let url = store.url();
    let mut runs = JoinSet::new();
    runs.spawn(output(bench.part("one", &url, 0..150)));
    runs.spawn(output(bench.part("two", &url, 150..300)));
    for run in runs.join_all().await {
        assert!(run.status.success(), "{}{}", out(&run), err(&run));
        // How far it is may be there, and no complaint.
        assert!(!err(&run).contains("tds:"), "{}", err(&run));
    }
    for n in 0..300 {
        let part = if n < 150 { "one-files" } else { "two-files" };
        let name = format!("bus-{n}");
        let file = bench.path(part).join(format!("v1_live_{name}"));
        assert_eq!(fs::read_to_string(file).expect("it is there"), live(&name));
    }
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 300));
    assert_eq!(seen.by_status, [(200, 300)].into());
    assert!(seen.peak_sockets <= 60, "{seen:?}");
    assert!(!bench.path("state").exists(), "the token is in the store");
}

#[tokio::test]
async fn ten_starts_at_once_ask_for_one_token_and_leave_no_lease() {
    let mut port = 0;
    let Some(store) = RedisServer::start_with(|_| {
        port = free_port();
        ["--port".to_owned(), port.to_string()].into()
    }) else {
        return;
    };
    known(&store).await;
    // What a start does not wait for is not told over such a way.
    let mut network = Network::default();
    network.there = Delay::Constant(Duration::from_millis(20));
    let far = Relay::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), network).await;
    let far = far.expect("a free port");
    let url = format!("redis://{}", far.address());
    let bench = Bench::new("fleet-get", Config::default()).await;
    let mut runs = JoinSet::new();
    for _ in 0..10 {
        let mut get = bench.tds(&["get", "/v1/live/bus"]);
        get.env("TDS_FLEET", &url);
        runs.spawn(output(get));
    }
    for run in runs.join_all().await {
        assert!(run.status.success(), "{}", err(&run));
        assert_eq!((out(&run), err(&run)), (live("bus"), String::new()));
    }
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 10));
    assert_eq!(seen.by_status, [(200, 10)].into());
    assert_eq!(open(&store), 0);
}

#[tokio::test]
async fn without_a_store_a_start_fails_by_its_deadline_and_says_why() {
    let bench = Bench::new("fleet-dead", Config::default()).await;
    let store = format!("redis://127.0.0.1:{}", free_port());
    let run = bench
        .run(&["get", "/v1/live/bus", "--deadline", "1s", "--fleet", &store])
        .await;
    assert_eq!(run.status.code(), Some(5), "{}", err(&run));
    let told = err(&run);
    let mut lines = told.lines();
    let away = "the fleet's store is away: Connection refused";
    let first = lines.next().expect("it says so");
    assert!(first.starts_with(&format!("tds: {away}")), "{told}");
    let failed = lines.next().expect("the failure");
    assert!(
        failed.contains(away) && failed.contains("deadline") && !failed.contains("no permit"),
        "{told}"
    );
    assert_eq!(lines.next(), None, "{told}");
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (0, 0), "never open");
}

#[tokio::test]
async fn a_store_without_memory_is_said_and_no_deadline_is_for_it() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let bench = Bench::new("fleet-memory", Config::default()).await;
    let url = store.url();
    let arguments = ["get", "/v1/live/bus", "--deadline", "4s", "--fleet", &url];
    let mut run = piped(bench.tds(&arguments));
    let mut says = BufReader::new(run.stderr.take().expect("it is piped"));
    let mut line = String::new();
    says.read_line(&mut line).expect("text");
    assert!(line.contains("has no memory of this quota"), "{line}");
    assert!(line.contains(" 31 s") || line.contains(" 32 s"), "{line}");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
    remembers(&store);
    let run = end(run).await;
    assert!(run.status.success());
    assert_eq!(out(&run), live("bus"));
    line.clear();
    says.read_line(&mut line).expect("text");
    assert_eq!(line, "", "that is all it says");
}

#[tokio::test]
async fn what_waits_for_a_store_ends_in_order() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let bench = Bench::new("fleet-stop", Config::default()).await;
    fs::write(bench.path("list"), "/v1/live/bus\n/v1/live/metro\n").expect("a file");
    let (list, files, report) = (bench.path("list"), bench.path("files"), bench.path("json"));
    let url = store.url();
    let of = [
        "--list",
        text(&list),
        "--out",
        text(&files),
        "--fleet",
        &url,
    ];
    let bulk = [&["bulk"][..], &of, &["--report", text(&report)]].concat();
    let poll = [&["poll"][..], &of].concat();
    for (job, code) in [(bulk, 1), (poll, 0)] {
        for sent in ["-TERM", "-INT", "-HUP"] {
            let mut run = piped(bench.tds(&job));
            let mut says = BufReader::new(run.stderr.take().expect("it is piped"));
            says.read_line(&mut String::new()).expect("text");
            signal(&run, sent);
            let run = end(run).await;
            assert_eq!(
                run.status.code(),
                Some(code),
                "{job:?} {sent}: {}",
                run.status
            );
        }
    }
    let report = fs::read(report).expect("it is there");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(
        (&report["total"], &report["unfinished"]),
        (&2.into(), &2.into())
    );
    assert_eq!(report["again"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["ended_by"], "interrupted");
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
}

#[tokio::test]
async fn a_store_that_refuses_the_password_ends_each_job_at_once() {
    let password = |_: &_| ["--requirepass".to_owned(), "right".to_owned()].into();
    let Some(store) = RedisServer::start_with(password) else {
        return;
    };
    let bench = Bench::new("fleet-password", Config::default()).await;
    fs::write(bench.path("list"), "/v1/live/bus\n").expect("a file");
    let (list, files, report) = (bench.path("list"), bench.path("files"), bench.path("json"));
    let of = ["--list", text(&list), "--out", text(&files)];
    for url in [store.url(), format!("{}?pass=wrong", store.url())] {
        for job in [
            ["get", "/v1/live/bus"].to_vec(),
            [&["poll"][..], &of].concat(),
            [&["bulk"][..], &of, &["--report", text(&report)]].concat(),
        ] {
            let mut run = bench.tds(&job);
            run.env("TDS_FLEET", &url);
            let run = output(run).await;
            assert_eq!(run.status.code(), Some(2), "{job:?}: {}", err(&run));
            assert!(err(&run).contains("refuses the password"), "{}", err(&run));
            assert!(!err(&run).contains("wrong"), "{}", err(&run));
        }
        let report = fs::read(&report).expect("it is there");
        let report: Value = serde_json::from_slice(&report).expect("JSON");
        assert_eq!(
            (&report["exit"], &report["unfinished"]),
            (&2.into(), &1.into())
        );
    }
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
}

#[tokio::test]
async fn the_health_of_a_backend_is_that_of_the_store() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let bench = Bench::new("fleet-backend", Config::default()).await;
    fs::write(bench.path("list"), "/v1/live/bus\n").expect("a file");
    let (list, url) = (bench.path("list"), store.url());
    let arguments = ["backend", "--list", text(&list), "--listen", "127.0.0.1:0"];
    let backend = Serving::start(bench.tds(&[&arguments[..], &["--fleet", &url]].concat()));
    let answer = backend.get("/v1/live/bus").await;
    assert_eq!((answer.status, answer.text()), (200, live("bus")));
    let well = backend.get("/healthz").await;
    assert_eq!(well.status, 200, "{}", well.text());
    let fleet = |text: &str| -> Value {
        let health: Value = serde_json::from_str(text).expect("JSON");
        health["fleet"].clone()
    };
    assert_eq!(fleet(&well.text())["ready"], true);

    store.kill();
    let ill = health(&backend, |health| health.status != 200).await;
    assert_eq!(ill.status, 503);
    let waits = fleet(&ill.text())["waits_for"].to_string();
    assert!(waits.contains("which is away"), "{waits}");
    let metrics = backend.get("/metrics").await.text();
    assert!(metrics.contains("tds_fleet_away 1"), "{metrics}");

    // Back, without memory: nobody asks, and it is seen all the same.
    store.restart();
    let forgetful = |health: &Answer| {
        let waits = fleet(&health.text())["waits_for"].to_string();
        waits.contains("was sent before")
    };
    health(&backend, forgetful).await;
    remembers(&store);
    health(&backend, |health| health.status == 200).await;
}

#[tokio::test]
async fn a_key_that_is_used_up_ends_each_job_of_the_fleet() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let bench = Bench::new("fleet-quota", Config::default()).await;
    let (sim, hour) = (bench.server.sim(), Duration::from_secs(3_600));
    sim.set_quota(Some(Quota::new(0, hour)));
    let url = store.url();
    let mut runs = JoinSet::new();
    for part in ["one", "two", "three"] {
        runs.spawn(output(bench.part(part, &url, 0..50)));
    }
    for run in runs.join_all().await {
        assert_eq!(run.status.code(), Some(3), "{}", err(&run));
    }
}

/// The health that is like this, when it is.
async fn health(backend: &Serving, is_it: impl Fn(&Answer) -> bool) -> Answer {
    let asked = async {
        loop {
            let health = backend.get("/healthz").await;
            if is_it(&health) {
                return health;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, asked).await.expect("it comes to that")
}

/// Free until somebody else takes it.
fn free_port() -> u16 {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    bound.local_addr().expect("an address").port()
}

/// The leases of all that use the name that is usual.
const ACCOUNT: &str = "{tds}:quota";
