//! Credentials that come from outside, and keys that are handed over.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use support::{Endpoint, endpoint::Reply, secs};
use tokio::time::sleep;
use tower_oidc_cc::{Credentials, Provider, TokenEndpoint, TokenSource};

fn tokens(provider: impl Into<Provider>, endpoint: &Endpoint) -> TokenSource {
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    TokenSource::builder(uri, provider).build(endpoint.clone())
}

/// The secrets that the endpoint received, in order.
fn secrets(endpoint: &Endpoint) -> Vec<String> {
    let secret = |body: &str| body.rsplit_once("client_secret=").unwrap().1.to_owned();
    endpoint
        .posts()
        .iter()
        .map(|post| secret(&post.body))
        .collect()
}

/// A provider whose secret can be changed, as a vault is.
fn vault(secret: &Arc<Mutex<String>>) -> Provider {
    let secret = Arc::clone(secret);
    Provider::from_fn(move || {
        let secret = secret.lock().unwrap().clone();
        async move { Credentials::new("client", secret) }
    })
}

/// A directory that is removed at the end of the test.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn secret(&self) -> PathBuf {
        self.0.join("secret")
    }

    /// Writes a new file and renames it over the old one.
    fn swap(&self, secret: &str) {
        let new = self.0.join("new");
        fs::write(&new, secret).unwrap();
        set_mode(&new, 0o600);
        fs::rename(new, self.secret()).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: u32) {}

#[tokio::test(start_paused = true)]
async fn provider_is_called_before_each_token_request() {
    let secret = Arc::new(Mutex::new("one".to_owned()));
    let endpoint = Endpoint::always(Reply::token(100));
    let tokens = tokens(vault(&secret), &endpoint);
    tokens.ready().await.unwrap();
    *secret.lock().unwrap() = "two".into();
    sleep(secs(90)).await;
    assert_eq!(secrets(&endpoint), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn malformed_secret_file_keeps_the_last_good_secret() {
    let dir = Dir::new("torn");
    let endpoint = Endpoint::always(Reply::token(100));
    let tokens = tokens(Provider::file("client", dir.secret()), &endpoint);
    let error = tokens.ready().await.unwrap_err();
    assert!(error.is_missing_credentials(), "{error}");
    assert_eq!(endpoint.count(), 0);
    dir.swap("good");
    sleep(secs(31)).await;
    tokens.ready().await.unwrap();
    for torn in ["", "two\nlines", "\u{0}"] {
        dir.swap(torn);
        sleep(secs(80)).await;
    }
    fs::remove_file(dir.secret()).unwrap();
    sleep(secs(80)).await;
    let secrets = secrets(&endpoint);
    assert!(
        secrets.len() >= 5 && secrets.iter().all(|s| s == "good"),
        "{secrets:?}"
    );
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn secret_file_that_others_can_write_is_refused() {
    let dir = Dir::new("mode");
    for mode in [0o602, 0o620, 0o777] {
        dir.swap("secret");
        set_mode(&dir.secret(), mode);
        let endpoint = Endpoint::default();
        let tokens = tokens(Provider::file("client", dir.secret()), &endpoint);
        let error = tokens.ready().await.unwrap_err();
        let reason = error.to_string();
        assert!(reason.contains("chmod 600"), "{reason}");
        assert_eq!(endpoint.count(), 0);
        set_mode(&dir.secret(), 0o600);
        sleep(secs(31)).await;
        tokens.ready().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn hung_provider_times_out_and_later_calls_recover() {
    let hang = Arc::new(AtomicUsize::new(0));
    let provider = {
        let hang = Arc::clone(&hang);
        Provider::from_fn(move || {
            let hangs = hang.load(Ordering::SeqCst) > 0;
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Credentials::new("client", "secret")
            }
        })
    };
    let endpoint = Endpoint::always(Reply::token(20));
    let tokens = tokens(provider, &endpoint);
    tokens.ready().await.unwrap();
    hang.store(1, Ordering::SeqCst);
    sleep(secs(21)).await;
    let error = tokens.ready().await.unwrap_err();
    assert!(error.is_missing_credentials());
    hang.store(0, Ordering::SeqCst);
    sleep(secs(21)).await;
    tokens.ready().await.unwrap();
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn named_pipe_is_refused_and_keeps_the_last_good_secret() {
    let dir = Dir::new("pipe");
    dir.swap("good");
    let endpoint = Endpoint::always(Reply::token(100));
    let provider = Provider::file("client", dir.secret());
    let kept = tokens(provider.clone(), &endpoint);
    kept.ready().await.unwrap();
    fs::remove_file(dir.secret()).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.secret())
        .status();
    assert!(made.unwrap().success());
    set_mode(&dir.secret(), 0o600);
    sleep(secs(101)).await;
    kept.ready().await.unwrap();
    assert_eq!(secrets(&endpoint), ["good"; 2]);
    let first = tokens(Provider::file("client", dir.secret()), &endpoint);
    let error = first.ready().await.unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn provider_error_shows_no_secret() {
    let provider = Provider::from_fn(async || {
        let error = "GET https://me:canary@vault.example.com/v1/secret?token=canary-1#canary failed: \
                     Bearer canary-0815-canary";
        Err::<Credentials, _>(error)
    });
    let error = tokens(provider, &Endpoint::default())
        .ready()
        .await
        .unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let text = format!("{error} {error:?} {error:#?} {source:?}");
    assert!(!text.contains("canary"), "{text}");
    assert!(
        text.contains("https://me:[redacted]@vault.example.com/v1/secret?[redacted] failed"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rotated_secret_ends_the_backoff_after_a_refusal_within_seconds() {
    let dir = Dir::new("ended");
    dir.swap("old");
    let endpoint = Endpoint::scripted([Reply::refusal()]);
    let tokens = tokens(Provider::file("client", dir.secret()), &endpoint);
    for _ in 0..30 {
        assert!(tokens.ready().await.is_err());
        sleep(secs(1)).await;
    }
    assert_eq!(endpoint.count(), 1, "the same secret is not sent again");
    dir.swap("new");
    let start = tokio::time::Instant::now();
    while tokens.ready().await.is_err() {
        sleep(secs(1)).await;
    }
    assert!(start.elapsed() <= secs(6), "{:?}", start.elapsed());
    assert_eq!(secrets(&endpoint), ["old", "new"]);
}
