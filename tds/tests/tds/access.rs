//! The log of a backend while the service fails, its access log, and the metrics of its users.

use std::{
    fs,
    process::{Command, Stdio},
    sync::{Mutex, mpsc},
};

use serde_json::Value;
use tds_sim::{Config, Faults};
use tokio::time::{Duration, sleep, timeout};

use crate::{
    Bench, HANGS, err, out, output,
    serving::Serving,
    signal, skipped, text,
    upstream::{Upstream, answer},
};

/// A backend whose standard output is a file.
fn serving(bench: &Bench, more: &[&str]) -> Serving {
    served(bench, backend(bench, more))
}

/// The same, with the data of another service.
fn served_by(bench: &Bench, upstream: &Upstream, more: &[&str]) -> Serving {
    let mut run = backend(bench, more);
    run.env("TDS_BASE_URL", &upstream.url);
    served(bench, run)
}

fn backend(bench: &Bench, more: &[&str]) -> Command {
    let list = bench.path("resources");
    fs::write(&list, "/v1/live/bus?$top=5\n/v1/live/metro\n/nothing\n").expect("a file");
    let arguments = ["backend", "--list", text(&list), "--listen", "127.0.0.1:0"];
    bench.tds(&[&arguments[..], more].concat())
}

fn served(bench: &Bench, run: Command) -> Serving {
    let log = fs::File::create(bench.path("access.log")).expect("a file");
    Serving::to(run, Stdio::from(log))
}

/// The lines of an access log.
fn lines(log: &str) -> Vec<Value> {
    let lines = log.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Ends it, and returns its access log.
async fn access(bench: &Bench, mut backend: Serving) -> String {
    signal(&backend.child, "-TERM");
    let ended = async {
        while backend.child.try_wait().expect("it is ours").is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANGS, ended).await.expect("it ends");
    fs::read_to_string(bench.path("access.log")).expect("it is there")
}

fn failing(fault: &str) -> Faults {
    let mut faults = Faults::default();
    faults.data.push(fault.parse().expect("a fault"));
    faults
}

#[tokio::test]
async fn outage_of_the_service_and_of_a_resource_is_a_line_each_and_another_at_its_end() {
    let bench = Bench::new("access-outage", Config::default()).await;
    let backend = serving(&bench, &["--fresh", "1ms", "--deadline", "30s"]);
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    bench.server.sim().set_faults(failing("503"));
    sleep(Duration::from_millis(20)).await;
    for _ in 0..2 {
        for _ in 0..20 {
            for target in ["/v1/live/metro", "/v1/live/bus?$top=5"] {
                assert_eq!(backend.get(target).await.status, 503);
            }
        }
        // A failure is served for a second.
        sleep(Duration::from_millis(1_100)).await;
    }
    bench.server.sim().set_faults(Faults::default());
    sleep(Duration::from_millis(1_100)).await;
    for target in ["/v1/live/metro", "/v1/live/bus?$top=5"] {
        assert_eq!(backend.get(target).await.status, 200);
    }
    // Here one resource fails alone.
    for _ in 0..2 {
        assert_eq!(backend.get("/nothing").await.status, 404);
        assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    }
    let log = backend.log();
    assert_eq!(log.matches("tds: outage: ").count(), 2, "{log}");
    assert_eq!(log.matches("outage over after ").count(), 1, "{log}");
    assert!(log.contains("status 503") && log.contains("retry"), "{log}");
    assert!(log.contains("failures: the service answers"), "{log}");
    assert!(log.contains("/nothing: no such resource"), "{log}");
}

#[tokio::test]
async fn access_log_has_a_line_of_json_for_each_request_and_no_query() {
    let bench = Bench::new("access-json", Config::default()).await;
    let (release, held) = mpsc::channel();
    let held = Mutex::new(held);
    let upstream = Upstream::start(move |_, nth| match nth {
        0 => {
            held.lock().expect("no panic").recv().expect("a release");
            answer("200 OK", "content-length: 4\r\n", b"data")
        }
        1 => answer("200 OK", "content-length: 4\r\n", b"data"),
        _ => answer("503 Service Unavailable", "content-length: 0\r\n", b""),
    });
    let backend = |fresh| {
        let more = ["--access-log", "--stale", "1h", "--fresh", fresh];
        served_by(&bench, &upstream, &more)
    };
    let bus = "/v1/live/bus?$top=5";
    let head = format!("GET {bus} HTTP/1.1\r\nhost: a");
    let calls = async |calls| {
        let there = async {
            while upstream.heads().len() < calls {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(HANGS, there).await.expect("it calls");
    };

    let first = backend("1h");
    let missed = first.send(&head).await;
    calls(1).await;
    let joined = first.send(&head).await;
    let both = async {
        let waiting = "tds_users_waiting 2\n";
        while !first.get("/metrics").await.text().contains(waiting) {}
    };
    timeout(HANGS, both).await.expect("both wait");
    sleep(Duration::from_millis(300)).await;
    release.send(()).expect("it is held");
    for waiting in [missed, joined] {
        assert_eq!(Serving::read(waiting).await.status, 200);
    }
    assert_eq!(first.get(bus).await.status, 200);
    assert_eq!(first.get("/v1/live/rail?key=s3cr3t").await.status, 404);
    let metrics = first.get("/metrics").await.text();
    for series in [
        "tds_users_requests_total{status=\"200\",cache=\"join\"} 1",
        "tds_users_requests_total{status=\"200\",cache=\"hit\"} 1",
        "tds_users_requests_total{status=\"404\",cache=\"none\"} 1",
    ] {
        assert!(
            metrics.lines().any(|line| line == series),
            "{series}: {metrics}"
        );
    }
    let log = access(&bench, first).await;
    let logged = lines(&log);
    assert!(!log.contains("/metrics"), "it is no user's: {log}");
    let of = |cache: &str| {
        logged
            .iter()
            .filter(|line| line["cache"] == cache)
            .collect::<Vec<_>>()
    };
    let (miss, join, hit) = (of("miss"), of("join"), of("hit"));
    assert_eq!((miss.len(), join.len(), hit.len()), (1, 1, 1), "{log}");
    for line in [miss[0], join[0], hit[0]] {
        assert_eq!(line["target"], "/v1/live/bus");
        assert_eq!(
            (&line["status"], &line["bytes"]),
            (&200.into(), &4.into()),
            "{line}"
        );
        assert_eq!(
            (&line["method"], &line["user"]),
            (&"GET".into(), &"127.0.0.1".into())
        );
        assert_eq!(
            line["upstream_ms"].is_null(),
            line["cache"] == "hit",
            "{line}"
        );
    }
    let slow = miss[0];
    assert!(
        slow["ms"].as_u64() >= slow["upstream_ms"].as_u64()
            && slow["upstream_ms"].as_u64() >= Some(300)
    );
    assert!(of("none").iter().any(|line| line["status"] == 404), "{log}");
    assert!(!log.contains("s3cr3t"), "{log}");

    // From here on the service fails.
    let second = backend("1ms");
    assert_eq!(second.get(bus).await.status, 200);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(second.get(bus).await.status, 200);
    let metrics = second.get("/metrics").await.text();
    let stale = "tds_users_requests_total{status=\"200\",cache=\"stale\"} 1";
    for series in [stale, "tds_users_seconds_count 2"] {
        assert!(
            metrics.lines().any(|line| line == series),
            "{series}: {metrics}"
        );
    }
    let log = access(&bench, second).await;
    let seen: Vec<_> = lines(&log)
        .iter()
        .map(|line| line["cache"].clone())
        .collect();
    assert_eq!(seen, ["miss", "stale"], "{log}");
}

#[tokio::test]
async fn access_log_has_queries_if_they_are_asked_for_and_no_line_by_default() {
    let bench = Bench::new("access-queries", Config::default()).await;
    for (more, targets) in [
        (
            &["--access-log", "--log-queries"][..],
            &["/v1/live/bus?$top=5"][..],
        ),
        (&[], &[]),
    ] {
        let backend = serving(&bench, more);
        assert_eq!(backend.get("/v1/live/bus?$top=5").await.status, 200);
        let log = access(&bench, backend).await;
        let seen: Vec<_> = lines(&log)
            .iter()
            .map(|line| line["target"].clone())
            .collect();
        assert_eq!(seen, targets, "{log}");
    }
}

#[tokio::test]
async fn each_metric_has_its_help_and_type_and_times_are_histograms() {
    let bench = Bench::new("access-metrics", Config::default()).await;
    let backend = serving(&bench, &[]);
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    let metrics = backend.get("/metrics").await.text();
    let of = |kind: &str| {
        let lines = metrics
            .lines()
            .filter_map(|line| line.strip_prefix(kind)?.split_once(' '));
        lines
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .collect::<Vec<_>>()
    };
    let (helps, types) = (of("# HELP "), of("# TYPE "));
    let names =
        |all: &[(String, String)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert!(types.len() > 15, "{metrics}");
    assert_eq!(names(&helps), names(&types), "each has both");
    for name in ["tds_users_seconds", "tds_call_seconds"] {
        assert!(
            types.contains(&(name.to_owned(), "histogram".to_owned())),
            "{name}: {types:?}"
        );
        assert!(metrics.contains(&format!("{name}_bucket{{")), "{name}");
    }
    assert!(
        metrics.contains("tds_users_waiting 0\n"),
        "this page is not for users: {metrics}"
    );
    for series in metrics
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let name = series.split(['{', ' ']).next().expect("a name");
        let ends = ["_bucket", "_sum", "_count"];
        let family = ends
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        let has = |all: &[(String, String)]| {
            all.iter()
                .any(|(known, _)| known == family || known == name)
        };
        assert!(has(&helps) && has(&types), "{series}");
    }
    if !skipped("promtool") {
        fs::write(bench.path("metrics"), &metrics).expect("a file");
        let file = fs::File::open(bench.path("metrics")).expect("it is there");
        let mut check = Command::new("promtool");
        check.args(["check", "metrics"]).stdin(file);
        let check = output(check).await;
        assert!(check.status.success(), "{}{}", out(&check), err(&check));
    }
}
