//! One token for programs that start often, in one file.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::{providers::Dir, support};

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use support::{Endpoint, builder, endpoint::Reply, settle};
use tokio::task::JoinSet;
use tower_oidc_cc::{FileStore, TokenSource};

fn token_file(dir: &Dir) -> PathBuf {
    dir.0.join("token.json")
}

fn process(dir: &Dir, endpoint: &Endpoint) -> TokenSource {
    builder()
        .store(FileStore::new(token_file(dir)))
        .build(endpoint.clone())
}

async fn token(source: &TokenSource) -> String {
    let token = source.token().await.unwrap();
    // The token is saved after callers have it.
    source.idle().await;
    token.secret().to_owned()
}

#[tokio::test]
async fn ten_starts_at_once_make_one_request() {
    let (dir, endpoint) = (Dir::new("ten"), Endpoint::default());
    let mut starts = JoinSet::new();
    for _ in 0..10 {
        let source = process(&dir, &endpoint);
        starts.spawn(async move { token(&source).await });
    }
    for token in starts.join_all().await {
        assert_eq!(token, "canary-token-1");
    }
    assert_eq!(endpoint.count(), 1);
    // The next start makes no request.
    assert_eq!(token(&process(&dir, &endpoint)).await, "canary-token-1");
    let mode = fs::metadata(token_file(&dir)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(&dir.0).unwrap().count(),
        2,
        "the token and its lock"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_request_ends_the_turn_at_once() {
    let (dir, endpoint) = (Dir::new("failed"), Endpoint::scripted([Reply::down()]));
    let failing = process(&dir, &endpoint);
    assert!(failing.ready().await.is_err());
    failing.idle().await;
    settle().await;
    let start = tokio::time::Instant::now();
    assert_eq!(token(&process(&dir, &endpoint)).await, "canary-token-2");
    assert!(start.elapsed().as_secs() < 5, "it does not wait");
}

#[test]
fn source_dropped_during_a_request_ends_its_turn() {
    let (dir, endpoint) = (Dir::new("ended"), Endpoint::always(Reply::hang()));
    let source = process(&dir, &endpoint);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lock = || {
        let file = fs::File::open(dir.0.join("token.json.lock")).unwrap();
        file.try_lock().is_ok()
    };
    runtime.block_on(async {
        let asks = source.clone();
        drop(tokio::spawn(async move { asks.ready().await }));
        while endpoint.count() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!lock(), "it is held while the request is under way");
    });
    drop(runtime);
    drop(source);
    // A program that another test starts has the file, too, until it runs.
    assert!((0..1_000_000).any(|_| {
        std::thread::yield_now();
        lock()
    }));
}

#[tokio::test]
async fn unusable_token_file_is_ignored_and_replaced() {
    let (dir, endpoint) = (Dir::new("unusable"), Endpoint::default());
    token(&process(&dir, &endpoint)).await;
    let path = token_file(&dir);
    let valid = fs::read_to_string(token_file(&dir)).unwrap();
    let foreign = r#"{"key":"x","token":"t","issued":0,"life":1}"#;
    // Left by a program that was killed.
    fs::write(dir.0.join("token.json.new"), "half a tok").unwrap();
    for (turn, (content, mode)) in [
        ("", 0o600),
        ("garbage", 0o600),
        (foreign, 0o600),
        (&*valid, 0o622),
        (&*valid, 0o644),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for _ in 0..2 {
            token(&process(&dir, &endpoint)).await;
            assert_eq!(endpoint.count(), turn + 2, "{content} {mode:o}");
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let names = fs::read_dir(&dir.0).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["token.json", "token.json.lock"]);
}
