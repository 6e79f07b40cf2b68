//! `tds get`: data or an exit code, one token for all starts.

mod turns;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Stdio,
};

use tds_sim::Quota;
use tokio::time::Duration;

use crate::{
    Bench, end, ended, err, live, output, says, until,
    upstream::{Upstream, answer, late, sized},
};

#[tokio::test]
async fn the_exit_code_shows_the_cause_and_nothing_else_is_written() {
    let bench = Bench::new().await;
    let (sim, id) = (bench.server.sim(), bench.server.client_id());
    let missing = bench.ends(1, "get /nothing/there").await;
    sim.set_roles(id, ["history"]).expect("its key");
    sim.revoke_all();
    let role = bench.ends(4, "get /v1/live/bus").await;
    says(&role, "role");
    sim.set_quota(Some(Quota::new(0, Duration::from_secs(3_600))));
    let quota = bench.ends(3, "get /v1/history/bus").await;
    let nobody = "get /v1/live/bus --deadline 3s --base-url http://127.0.0.1:1";
    let nobody = bench.ends(5, nobody).await;
    for run in [missing, role, quota, nobody] {
        assert!(run.stdout.is_empty());
        assert!(!err(&run).contains(bench.server.client_secret()));
    }
}

#[tokio::test]
async fn truncated_response_is_an_error() {
    let bench = Bench::new().await;
    bench.fail("truncate");
    bench.write("bus.json", "of yesterday");
    bench.ends(5, "get /v1/live/bus --out bus.json").await;
    assert!(bench.ends(5, "get /v1/live/bus").await.stdout.is_empty());
    let file = fs::read(bench.path("bus.json")).expect("it is there");
    assert_eq!(file, b"of yesterday");
    assert!(!bench.path("bus.json.part").exists());
}

#[tokio::test]
async fn unusable_state_folder_is_only_a_warning() {
    let bench = Bench::new().await;
    let run = bench.ends(0, "get /v1/live/bus --state /proc/none").await;
    says(&run, "/proc/none");
}

#[tokio::test]
async fn unwritable_file_is_refused_before_any_request() {
    let bench = Bench::new().await;
    for bad in ["/none/bus.json", ".", "nothere/", "/dev/stdout"] {
        let run = bench
            .ends(2, &format!("get /v1/live/bus --out {bad}"))
            .await;
        says(&run, bad);
    }
    assert_eq!(bench.asked(), (0, 0));
}

#[tokio::test]
async fn a_full_disk_is_an_error() {
    let bench = Bench::new().await;
    let mut run = bench.tds("get /v1/live/bus");
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    run.stdout(full.expect("Linux has it"))
        .stderr(Stdio::piped());
    let run = end(run.spawn().expect("it starts")).await;
    ended(&run, 1);
    says(&run, "standard output");
}

#[tokio::test]
async fn mounted_secret_is_read_or_refused_before_any_request() {
    let bench = Bench::new().await;
    // A line feed at its end is ignored.
    bench.write("secret", format!("{}\r\n", bench.server.client_secret()));
    let with_file = async |file: &str| {
        let mut run = bench.tds("get /v1/live/bus");
        run.env_remove("TDS_CLIENT_SECRET")
            .env("TDS_CLIENT_SECRET_FILE", file);
        output(run).await
    };
    // Modes as Kubernetes mounts a secret for a group, and as Docker and Kubernetes do by default.
    for (mode, code) in [
        (0o400, 0),
        (0o440, 0),
        (0o600, 0),
        (0o640, 0),
        (0o444, 2),
        (0o644, 2),
        (0o660, 2),
    ] {
        bench.permit("secret", mode);
        let run = with_file("secret").await;
        assert_eq!(run.status.code(), Some(code), "{mode:o}: {}", err(&run));
        let told = err(&run);
        assert_eq!(told.contains("defaultMode"), code == 2, "{told}");
    }
    assert_eq!(bench.asked(), (1, 4));
    ended(&with_file(".").await, 2);
}

impl Bench {
    pub(crate) fn permit(&self, name: &str, mode: u32) {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.path(name), mode).expect("it is ours");
    }
}

#[tokio::test]
async fn symbolic_link_stays_and_its_target_is_written() {
    let bench = Bench::new().await;
    let link = bench.path("link");
    bench.write("bus.json", "of yesterday");
    symlink("bus.json", &link).expect("a link");
    bench.ends(0, "get /v1/live/bus --out link").await;
    assert_eq!(
        fs::read_link(&link).expect("it stays"),
        Path::new("bus.json")
    );
    let data = fs::read_to_string(bench.path("bus.json")).expect("it is whole");
    assert_eq!(data, live("bus"));
    // A dangling link is an error, and stays.
    fs::remove_file(bench.path("bus.json")).expect("it is there");
    bench.ends(2, "get /v1/live/bus --out link").await;
    assert!(fs::read_link(&link).is_ok());
}

#[tokio::test]
async fn disk_full_at_the_end_leaves_no_part() {
    let bench = Bench::of(|_, _| late(sized("200 OK", "", b"123456789"), 2)).await;
    let mut run = bench.tds("get /x --out bus.json");
    let run = run.stderr(Stdio::piped()).spawn().expect("it starts");
    until(async || !bench.heads().is_empty()).await;
    // The part of the file is a link to a device without space.
    let part = bench.path("bus.json.part");
    symlink("/dev/full", &part).expect("a link");
    let run = end(run).await;
    ended(&run, 1);
    says(&run, "No space left");
    assert!(fs::symlink_metadata(&part).is_err() && !bench.path("bus.json").exists());
}

#[tokio::test]
async fn get_trusts_the_roots_of_ssl_cert_file() {
    let bench = Bench::with(|config| config.tls = true).await;
    let roots = bench.server.ca_file().expect("it speaks TLS");
    for (roots, deadline, code) in [(Some(roots), "1m", 0), (None, "5s", 5)] {
        let mut run = bench.tds(&format!("get /v1/live/bus --deadline {deadline}"));
        run.env_remove("SSL_CERT_FILE");
        run.envs(roots.map(|roots| ("SSL_CERT_FILE", roots)));
        let run = output(run).await;
        ended(&run, code);
        assert_eq!(err(&run).contains("certificate"), roots.is_none());
        // Nothing is sent without them.
        assert_eq!(bench.asked().1, 1);
    }
}

#[tokio::test]
async fn response_of_any_length_is_data_or_nothing_and_leaves_no_file_behind() {
    let mut bench = Bench::new().await;
    fs::create_dir_all(bench.path("spools")).expect("a folder");
    let run = async |bench: &Bench, line: &str| {
        let mut run = bench.tds(line);
        run.env("TMPDIR", "spools");
        output(run).await
    };
    let file = |bench: &Bench| fs::read(bench.path("long.json")).expect("the data");
    // Larger than what the library reads in one piece.
    let get = "get /v1/history/long?bytes=70000000";
    let printed = run(&bench, get).await;
    assert_eq!(printed.stdout.len(), 70_000_000, "{}", err(&printed));
    ended(&run(&bench, &format!("{get} --out long.json")).await, 0);
    assert_eq!(file(&bench).len(), 70_000_000);
    bench.ends(0, "check /v1/history/long?bytes=70000000").await;

    // The body ends early, after more than is kept in memory.
    bench.upstream = Some(Upstream::start(|_, _| {
        let headers = "content-type: application/json\r\ncontent-length: 70000000\r\n";
        answer("200 OK", headers, &vec![b'x'; 20_000_000])
    }));
    bench.write("long.json", "old");
    for out in ["", "--out long.json"] {
        let run = run(&bench, &format!("get /x --deadline 20s {out}")).await;
        ended(&run, 5);
        assert!(run.stdout.is_empty());
        assert_eq!(err(&run).lines().count(), 1, "{}", err(&run));
    }
    assert_eq!(file(&bench), b"old");
    assert_eq!(
        fs::read_dir(bench.path("spools"))
            .expect("a folder")
            .count(),
        0
    );
    assert!(!bench.path("long.json.part").exists());
}
