//! One token for programs that start often, in one file.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::{providers::Dir, support};

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use support::{Endpoint, builder, endpoint::Reply, settle, warnings::Warnings};
use tokio::task::JoinSet;
use tower_oidc_cc::{Credentials, FileStore, TokenEndpoint, TokenSource};

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

#[tokio::test]
async fn corrupt_or_foreign_token_file_causes_a_token_request() {
    let (dir, endpoint) = (Dir::new("corrupt"), Endpoint::default());
    for content in [
        "",
        "garbage",
        r#"{"key":"x","token":"t","issued":0,"life":1}"#,
    ] {
        fs::write(token_file(&dir), content).unwrap();
        let before = endpoint.count();
        token(&process(&dir, &endpoint)).await;
        assert_eq!(endpoint.count(), before + 1, "{content}");
    }
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "other").unwrap();
    let other = TokenSource::builder(uri, Credentials::new("other", "s").unwrap());
    let other = other
        .store(FileStore::new(token_file(&dir)))
        .build(endpoint.clone());
    assert_eq!(token(&other).await, "canary-token-4");
}

#[tokio::test]
async fn unwritable_token_file_works_like_no_store() {
    let endpoint = Endpoint::default();
    for path in ["/no/such/folder/token.json", "/proc/token.json"] {
        let source = builder()
            .store(FileStore::new(path))
            .build(endpoint.clone());
        token(&source).await;
        token(&source).await;
    }
    assert_eq!(endpoint.count(), 2);
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

#[tokio::test]
async fn token_file_writable_by_others_is_ignored_and_replaced() {
    let (dir, endpoint) = (Dir::new("planted"), Endpoint::default());
    token(&process(&dir, &endpoint)).await;
    fs::set_permissions(token_file(&dir), fs::Permissions::from_mode(0o622)).unwrap();
    token(&process(&dir, &endpoint)).await;
    assert_eq!(endpoint.count(), 2);
    let mode = fs::metadata(token_file(&dir)).unwrap().permissions().mode();
    assert_eq!(
        mode & 0o777,
        0o600,
        "and is replaced by one for its owner alone"
    );
    token(&process(&dir, &endpoint)).await;
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test]
async fn token_file_readable_by_others_or_foreign_is_ignored() {
    let (dir, endpoint) = (Dir::new("foreign"), Endpoint::default());
    token(&process(&dir, &endpoint)).await;
    // The file belongs to this user, but has bits for others. A process of root can read any file.
    fs::set_permissions(token_file(&dir), fs::Permissions::from_mode(0o644)).unwrap();
    token(&process(&dir, &endpoint)).await;
    assert_eq!(endpoint.count(), 2);
    if std::os::unix::fs::chown(token_file(&dir), Some(65_534), None).is_ok() {
        token(&process(&dir, &endpoint)).await;
        assert_eq!(endpoint.count(), 3);
    }
}

#[test]
fn source_dropped_during_a_request_ends_its_turn() {
    let (dir, endpoint) = (Dir::new("ended"), Endpoint::always(Reply::hang()));
    let source = process(&dir, &endpoint);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
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
    assert!(lock());
}

#[tokio::test]
async fn leftover_file_of_a_killed_program_is_removed() {
    let (dir, endpoint) = (Dir::new("killed"), Endpoint::default());
    let left = dir.0.join("token.json.new");
    fs::write(&left, "half a tok").unwrap();
    token(&process(&dir, &endpoint)).await;
    assert!(!left.exists());
    let names = fs::read_dir(&dir.0).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["token.json", "token.json.lock"]);
}

#[tokio::test]
async fn unusable_token_file_is_logged_with_its_path() {
    let warnings = Warnings::default();
    let _guard = warnings.heard();
    let (dir, endpoint) = (Dir::new("warned"), Endpoint::default());
    fs::create_dir(token_file(&dir)).unwrap();
    let source = process(&dir, &endpoint);
    source.ready().await.unwrap();
    source.idle().await;
    // It was neither read nor written.
    assert_eq!(warnings.of("the token store failed"), 2);
    assert_eq!(warnings.of(token_file(&dir).to_str().unwrap()), 2);
}

#[tokio::test(start_paused = true)]
async fn programs_that_share_a_file_share_what_the_endpoint_said() {
    let (dir, endpoint) = (Dir::new("said"), Endpoint::always(Reply::refusal()));
    for _ in 0..5 {
        let source = process(&dir, &endpoint);
        let error = source.ready().await.unwrap_err();
        assert_eq!(error.oauth_error(), Some("unauthorized_client"));
    }
    assert_eq!(endpoint.count(), 1);
    let mode = fs::metadata(token_file(&dir)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::write(token_file(&dir), "garbage").unwrap();
    endpoint.heal();
    assert_eq!(token(&process(&dir, &endpoint)).await, "canary-token-2");
}
