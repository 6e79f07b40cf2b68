//! `tds get`: data or an exit code, one token for all starts.

mod turns;

use std::{fs, path::Path, process::Stdio};

use tds_sim::{Config, Quota};
use tokio::{
    task::spawn_blocking,
    time::{Duration, sleep},
};

use crate::{
    Bench, end, err, output, text,
    upstream::{Upstream, answer, late},
};

#[tokio::test]
async fn the_exit_code_shows_the_cause_and_nothing_else_is_written() {
    let bench = Bench::new("get-exit", Config::default()).await;
    let missing = bench.run(&["get", "/nothing/there"]).await;
    assert_eq!(missing.status.code(), Some(1), "{}", err(&missing));
    assert!(missing.stdout.is_empty());

    let server = &bench.server;
    server
        .sim()
        .set_roles(server.client_id(), ["history"])
        .expect("its key");
    server.sim().revoke_all();
    let role = bench.run(&["get", "/v1/live/bus"]).await;
    assert_eq!(role.status.code(), Some(4), "{}", err(&role));
    assert!(err(&role).contains("role"), "{}", err(&role));

    server
        .sim()
        .set_quota(Some(Quota::new(0, Duration::from_secs(3_600))));
    let quota = bench.run(&["get", "/v1/history/bus"]).await;
    assert_eq!(quota.status.code(), Some(3), "{}", err(&quota));

    let mut nobody = bench.tds(&["get", "/v1/live/bus", "--deadline", "3s"]);
    nobody.env("TDS_BASE_URL", "http://127.0.0.1:1");
    let nobody = output(nobody).await;
    assert_eq!(nobody.status.code(), Some(5), "{}", err(&nobody));
    for run in [role, quota, nobody] {
        assert!(run.stdout.is_empty());
        assert!(!err(&run).contains(server.client_secret()));
    }
}

#[tokio::test]
async fn newline_at_the_end_of_the_secret_file_is_ignored() {
    let bench = Bench::new("get-file", Config::default()).await;
    let secret = bench.path("secret");
    fs::write(&secret, format!("{}\r\n", bench.server.client_secret())).expect("a file");
    permit(&secret, 0o600);
    let file = bench.path("bus.json");
    let mut run = bench.tds(&["get", "/v1/live/bus", "--out", text(&file)]);
    run.env_remove("TDS_CLIENT_SECRET")
        .env("TDS_CLIENT_SECRET_FILE", &secret);
    let run = output(run).await;
    assert!(run.status.success(), "{}", err(&run));
    assert!(run.stdout.is_empty());
    let data = fs::read_to_string(&file).expect("it is whole");
    assert!(data.starts_with(r#"{"name":"bus""#), "{data}");
}

#[tokio::test]
async fn truncated_response_is_an_error() {
    let mut config = Config::default();
    config
        .faults
        .data
        .push("truncate".parse().expect("a fault"));
    let bench = Bench::new("get-cut", config).await;
    let file = bench.path("bus.json");
    fs::write(&file, "of yesterday").expect("a file");
    let run = bench
        .run(&["get", "/v1/live/bus", "--out", text(&file)])
        .await;
    assert_eq!(run.status.code(), Some(5), "{}", err(&run));
    let run = bench.run(&["get", "/v1/live/bus"]).await;
    assert!(run.stdout.is_empty());
    assert_eq!(
        fs::read_to_string(&file).expect("it is there"),
        "of yesterday"
    );
    assert!(!bench.path("bus.json.part").exists());
}

#[tokio::test]
async fn unusable_state_folder_is_only_a_warning() {
    let bench = Bench::new("get-state", Config::default()).await;
    let mut run = bench.tds(&["get", "/v1/live/bus"]);
    run.env("TDS_STATE_DIR", "/proc/none");
    let run = output(run).await;
    assert!(run.status.success(), "{}", err(&run));
    assert!(err(&run).contains("/proc/none"), "{}", err(&run));
}

#[tokio::test]
async fn unwritable_file_is_refused_before_any_request() {
    let bench = Bench::new("get-out", Config::default()).await;
    let folder = text(&bench.folder).to_owned();
    let slash = format!("{folder}/nothere/");
    for bad in ["/none/bus.json", &folder, &slash] {
        let run = bench.run(&["get", "/v1/live/bus", "--out", bad]).await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
        assert!(err(&run).contains(bad), "{}", err(&run));
    }
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
}

#[tokio::test]
async fn a_full_disk_is_an_error() {
    let bench = Bench::new("get-full", Config::default()).await;
    let mut run = bench.tds(&["get", "/v1/live/bus"]);
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    run.stdout(full).stderr(Stdio::piped());
    let run = end(run.spawn().expect("it starts")).await;
    assert_eq!(run.status.code(), Some(1), "{}", err(&run));
    assert!(err(&run).contains("standard output"), "{}", err(&run));
}

#[tokio::test]
async fn mounted_secret_is_read_or_refused_before_any_request() {
    let bench = Bench::new("get-mounted", Config::default()).await;
    let secret = bench.path("secret");
    fs::write(&secret, bench.server.client_secret()).expect("a file");
    // Modes as Kubernetes mounts a secret for a group, and as Docker and Kubernetes do by default.
    for (mode, code) in [
        (0o400, 0),
        (0o440, 0),
        (0o640, 0),
        (0o444, 2),
        (0o644, 2),
        (0o660, 2),
    ] {
        permit(&secret, mode);
        let mut run = bench.tds(&["get", "/v1/live/bus"]);
        run.env_remove("TDS_CLIENT_SECRET")
            .env("TDS_CLIENT_SECRET_FILE", &secret);
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(code), "{mode:o}: {}", err(&run));
        assert_eq!(
            err(&run).contains("defaultMode"),
            code == 2,
            "{}",
            err(&run)
        );
    }
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 3));
    let mut run = bench.tds(&["get", "/v1/live/bus"]);
    run.env_remove("TDS_CLIENT_SECRET")
        .env("TDS_CLIENT_SECRET_FILE", bench.path(""));
    let run = output(run).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
}

fn permit(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[tokio::test]
async fn symbolic_link_stays_and_its_target_is_written() {
    let bench = Bench::new("get-link", Config::default()).await;
    let (file, link) = (bench.path("bus.json"), bench.path("link"));
    fs::write(&file, "of yesterday").expect("a file");
    std::os::unix::fs::symlink("bus.json", &link).expect("a link");
    let arguments = ["get", "/v1/live/bus", "--out", text(&link)];
    let run = bench.run(&arguments).await;
    assert!(run.status.success(), "{}", err(&run));
    assert_eq!(
        fs::read_link(&link).expect("it stays"),
        Path::new("bus.json")
    );
    let data = fs::read_to_string(&file).expect("it is whole");
    assert!(data.starts_with(r#"{"name":"bus""#), "{data}");
    let run = bench
        .run(&["get", "/v1/live/bus", "--out", "/dev/stdout"])
        .await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    // A dangling link is an error, and stays.
    fs::remove_file(&file).expect("it is there");
    let run = bench.run(&arguments).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    assert!(fs::read_link(&link).is_ok());
}

#[tokio::test]
async fn disk_full_at_the_end_leaves_no_part() {
    let bench = Bench::new("get-part", Config::default()).await;
    let file = bench.path("bus.json");
    let upstream = Upstream::start(|_, _| {
        let headers = "content-type: application/json\r\ncontent-length: 9\r\n";
        late(answer("200 OK", headers, b"123456789"), 2)
    });
    let mut run = bench.tds(&["get", "/x", "--base-url", &upstream.url]);
    let run = run.args(["--out", text(&file)]).stderr(Stdio::piped());
    let run = run.spawn().expect("it starts");
    while upstream.heads().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    // The part of the file is a link to a device without space.
    let part = bench.path("bus.json.part");
    std::os::unix::fs::symlink("/dev/full", &part).expect("a link");
    let run = spawn_blocking(|| run.wait_with_output()).await;
    let run = run.expect("no panic").expect("it ends");
    assert_eq!(run.status.code(), Some(1), "{}", err(&run));
    assert!(err(&run).contains("No space left"), "{}", err(&run));
    assert!(fs::symlink_metadata(&part).is_err() && !file.exists());
}

#[tokio::test]
async fn get_trusts_the_roots_of_ssl_cert_file() {
    let mut config = Config::default();
    config.tls = true;
    let bench = Bench::new("get-https", config).await;
    let roots = bench.server.ca_file().expect("it speaks TLS");
    for (has_roots, deadline, code) in [(true, "1m", 0), (false, "5s", 5)] {
        let mut run = bench.tds(&["get", "/v1/live/bus", "--deadline", deadline]);
        match has_roots {
            true => run.env("SSL_CERT_FILE", roots),
            // Nothing is sent without them.
            false => run.env_remove("SSL_CERT_FILE"),
        };
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(code), "{}", err(&run));
        assert_eq!(err(&run).contains("certificate"), !has_roots);
        assert_eq!(bench.server.ledger().summary().data_calls, 1);
    }
}

#[tokio::test]
async fn response_of_any_length_is_data_or_nothing_and_leaves_no_file_behind() {
    let bench = Bench::new("get-long", Config::default()).await;
    let spools = bench.path("spools");
    fs::create_dir_all(&spools).expect("a folder");
    let file = bench.path("long.json");
    fs::write(&file, "old").expect("a file");
    // Larger than what the library reads in one piece.
    let length = 70_000_000;
    let target = format!("/v1/history/long?bytes={length}");
    for arguments in [
        &["get", &target][..],
        &["get", &target, "--out", text(&file)],
    ] {
        let mut run = bench.tds(arguments);
        run.env("TMPDIR", &spools);
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(0), "{}", err(&run));
        let data = match arguments.len() {
            2 => run.stdout,
            _ => fs::read(&file).expect("the data"),
        };
        assert_eq!(data.len(), length);
    }
    assert_eq!(bench.run(&["check", &target]).await.status.code(), Some(0));

    // The body ends early, after more than is kept in memory.
    let upstream = Upstream::start(move |_, _| {
        let headers = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
        answer("200 OK", &headers, &vec![b'x'; 20_000_000])
    });
    fs::write(&file, "old").expect("a file");
    for out in [None, Some(text(&file))] {
        let arguments = [
            "get",
            "/x",
            "--base-url",
            &upstream.url,
            "--deadline",
            "20s",
        ];
        let mut run = bench.tds(&arguments);
        run.args(out.iter().flat_map(|out| ["--out", out]));
        run.env("TMPDIR", &spools);
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(5), "{}", err(&run));
        assert!(run.stdout.is_empty());
        assert_eq!(err(&run).lines().count(), 1, "{}", err(&run));
    }
    assert_eq!(fs::read(&file).expect("it is there"), b"old");
    assert_eq!(fs::read_dir(&spools).expect("a folder").count(), 0);
    assert!(!bench.path("long.json.part").exists());
}
