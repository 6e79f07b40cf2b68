//! A large body goes through a program in little memory, however large it is.

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    process::Command,
};

use tds_sim::Config;
use tokio::task::spawn_blocking;
use tower_tds::Builder;

use crate::client::world::{Built as _, start};

/// Downloads like the example `download`. Returns the number of bytes, and the most memory in KiB that the process had
/// for itself: without its program, whose size is that of all suites.
async fn download() -> (usize, usize) {
    let client = Builder::from_env().expect("it is set").loopback_http();
    let client = client.built();
    let path = format!("/v1/history/timetable?bytes={BYTES}");
    let mut timetable = client.get(&path).await.expect("data");
    let mut file = File::create("/dev/null").expect("it is there");
    let (mut bytes, mut most) = (0, 0);
    while let Some(piece) = timetable.chunk().await.expect("a whole body") {
        file.write_all(&piece).expect("it takes all");
        if bytes / STEP < (bytes + piece.len()) / STEP {
            most = most.max(resident());
        }
        bytes += piece.len();
    }
    (bytes, most)
}

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("it is there");
    let now = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let now = now.and_then(|line| line.split_whitespace().next());
    now.expect("a line").parse().expect("a number")
}

#[tokio::test]
async fn a_download_takes_less_than_8_megabytes() {
    if env::var_os(CHILD).is_some() {
        let (bytes, most) = download().await;
        println!("SAID {bytes} {most}");
        return;
    }
    let server = start(Config::default()).await;
    let mut child = Command::new(env::current_exe().expect("this test"));
    child
        .args([THIS, "--exact", "--nocapture"])
        .env_clear()
        .envs([
            ("TDS_AUTH_URL", server.auth_url()),
            ("TDS_BASE_URL", server.base_url()),
            ("TDS_CLIENT_ID", server.client_id()),
            ("TDS_CLIENT_SECRET", server.client_secret()),
            (CHILD, "1"),
        ]);
    let said = spawn_blocking(move || child.output()).await;
    let said = said.expect("no panic").expect("it runs").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let said = said.split_once("SAID ").expect(&said).1;
    let mut said = said.split_whitespace().map(str::parse::<usize>);
    let mut next = || said.next().expect("two numbers").expect("a number");
    let (bytes, most) = (next(), next());
    assert_eq!(bytes, BYTES);
    assert!((500..8_000).contains(&most), "{most} KiB");
}

/// Set for the process that is watched.
const CHILD: &str = "TDS_TEST_DOWNLOADS";

const THIS: &str = "client::memory::a_download_takes_less_than_8_megabytes";

/// Six times the memory that the download may take.
const BYTES: usize = 50_000_000;

/// Bytes between two looks at the memory.
const STEP: usize = 1_000_000;
