//! The log of a backend while the service fails, its access log, and the metrics of its users.

use std::{
    fs,
    process::Command,
    sync::{Mutex, mpsc},
};

use tokio::time::{Duration, sleep};

use crate::{
    Bench, err, events, out, output, serving::Serving, signal, skipped, until, upstream::sized,
};

/// A backend whose standard output is a file.
fn logged(bench: &Bench, more: &str) -> Serving {
    let log = fs::File::create(bench.path("access.log")).expect("a file");
    let backend = bench.tds(&format!("backend --listen 127.0.0.1:0 {more}"));
    Serving::to(backend, log.into())
}

/// Ends it, and returns its access log.
async fn access(bench: &Bench, mut backend: Serving) -> String {
    signal(&backend.child, "-TERM");
    until(async || backend.child.try_wait().expect("it is ours").is_some()).await;
    fs::read_to_string(bench.path("access.log")).expect("it is there")
}

#[track_caller]
fn has_lines(metrics: &str, wanted: &[&str]) {
    for line in wanted {
        assert!(metrics.lines().any(|it| it == *line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn outage_of_the_service_and_of_a_resource_is_a_line_each_and_another_at_its_end() {
    let bench = Bench::new().await;
    let backend = bench.serve("--fresh 1ms --deadline 30s");
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    bench.fail("503");
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
    bench.fail("");
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
    let (release, held) = mpsc::channel();
    let held = Mutex::new(held);
    let bench = Bench::of(move |_, nth| {
        if nth == 0 {
            held.lock().expect("no panic").recv().expect("a release");
        }
        let status = ["200 OK", "503 Service Unavailable"][usize::from(nth > 1)];
        sized(status, "", b"data")
    })
    .await;
    let bus = "/v1/live/bus?$top=5";
    bench.list(bus);
    let log = "--list list --access-log --stale 1h --fresh";
    let head = format!("GET {bus} HTTP/1.1\r\nhost: a");

    let first = logged(&bench, &format!("{log} 1h"));
    let missed = first.send(&head).await;
    until(async || !bench.heads().is_empty()).await;
    let joined = first.send(&head).await;
    let both = async || {
        first
            .get("/metrics")
            .await
            .text()
            .contains("tds_users_waiting 2\n")
    };
    until(both).await;
    sleep(Duration::from_millis(300)).await;
    release.send(()).expect("it is held");
    for waiting in [missed, joined] {
        assert_eq!(Serving::read(waiting).await.status, 200);
    }
    assert_eq!(first.get(bus).await.status, 200);
    assert_eq!(first.get("/v1/live/rail?key=s3cr3t").await.status, 404);
    let series = [
        "tds_users_requests_total{status=\"200\",cache=\"join\"} 1",
        "tds_users_requests_total{status=\"200\",cache=\"hit\"} 1",
        "tds_users_requests_total{status=\"404\",cache=\"none\"} 1",
    ];
    has_lines(&first.get("/metrics").await.text(), &series);
    let text = access(&bench, first).await;
    assert!(!text.contains("/metrics"), "it is no user's: {text}");
    assert!(!text.contains("s3cr3t"), "{text}");
    let lines = events(&text);
    let of = |cache: &str| {
        let lines = lines.iter().filter(|line| line["cache"] == cache);
        lines.collect::<Vec<_>>()
    };
    assert!(
        of("none").iter().any(|line| line["status"] == 404),
        "{text}"
    );
    for cache in ["miss", "join", "hit"] {
        let [line] = of(cache)[..] else {
            unreachable!("one line: {text}")
        };
        for (name, value) in [
            ("target", "/v1/live/bus"),
            ("method", "GET"),
            ("user", "127.0.0.1"),
        ] {
            assert_eq!(line[name], value, "{line}");
        }
        assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &4.into()));
        assert_eq!(line["upstream_ms"].is_null(), cache == "hit", "{line}");
    }
    let slow = |name: &str| of("miss")[0][name].as_u64();
    assert!(slow("ms") >= slow("upstream_ms") && slow("upstream_ms") >= Some(300));

    // From here on the service fails.
    let second = logged(&bench, &format!("{log} 1ms"));
    assert_eq!(second.get(bus).await.status, 200);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(second.get(bus).await.status, 200);
    let stale = "tds_users_requests_total{status=\"200\",cache=\"stale\"} 1";
    let metrics = second.get("/metrics").await.text();
    has_lines(&metrics, &[stale, "tds_users_seconds_count 2"]);
    let text = access(&bench, second).await;
    let seen: Vec<_> = events(&text)
        .iter()
        .map(|line| line["cache"].clone())
        .collect();
    assert_eq!(seen, ["miss", "stale"], "{text}");
}

#[tokio::test]
async fn access_log_has_queries_if_they_are_asked_for_and_no_line_by_default() {
    let bench = Bench::new().await;
    let bus = "/v1/live/bus?$top=5";
    for (more, targets) in [("--access-log --log-queries", &[bus][..]), ("", &[])] {
        let backend = logged(&bench, more);
        assert_eq!(backend.get(bus).await.status, 200);
        let log = access(&bench, backend).await;
        let seen: Vec<_> = events(&log)
            .iter()
            .map(|line| line["target"].clone())
            .collect();
        assert_eq!(seen, targets, "{log}");
    }
}

#[tokio::test]
async fn each_metric_has_its_help_and_type_and_times_are_histograms() {
    let bench = Bench::new().await;
    let backend = bench.serve("");
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    let metrics = backend.get("/metrics").await.text();
    let of = |kind: &str| {
        let lines = metrics.lines();
        let lines = lines.filter_map(|line| line.strip_prefix(kind)?.split_once(' '));
        lines.collect::<Vec<_>>()
    };
    let (helps, types) = (of("# HELP "), of("# TYPE "));
    let names = |all: &[(&str, _)]| all.iter().map(|(name, _)| (*name).to_owned()).collect();
    let known: Vec<String> = names(&types);
    assert!(types.len() > 15, "{metrics}");
    assert_eq!(names(&helps), known, "each has both");
    for name in ["tds_users_seconds", "tds_call_seconds"] {
        assert!(types.contains(&(name, "histogram")), "{name}: {types:?}");
        assert!(metrics.contains(&format!("{name}_bucket{{")), "{name}");
    }
    // This page is not for users.
    has_lines(&metrics, &["tds_users_waiting 0"]);
    for series in metrics
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let name = series.split(['{', ' ']).next().expect("a name");
        let mut ends = ["", "_bucket", "_sum", "_count"].iter();
        let is_known = |end: &&str| known.iter().any(|known| format!("{known}{end}") == name);
        assert!(ends.any(is_known), "{series}");
    }
    if !skipped("promtool") {
        bench.write("metrics", &metrics);
        let file = fs::File::open(bench.path("metrics")).expect("it is there");
        let mut check = Command::new("promtool");
        check.args(["check", "metrics"]).stdin(file);
        let check = output(check).await;
        assert!(check.status.success(), "{}{}", out(&check), err(&check));
    }
}
