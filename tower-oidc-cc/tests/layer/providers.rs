//! Credentials that come from outside, and keys that are handed over.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use http::StatusCode;
use support::{Again, DATA, Endpoint, dead, endpoint::Reply, gateway, get, layer, number, secs};
use tokio::time::{Instant, sleep};
use tower::{Layer as _, ServiceExt as _};
use tower_oidc_cc::{Credentials, CredentialsProvider, TokenEndpoint, TokenSource};

fn tokens(provider: impl Into<CredentialsProvider>, endpoint: &Endpoint) -> TokenSource {
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
fn vault(secret: &Arc<Mutex<String>>) -> CredentialsProvider {
    let secret = Arc::clone(secret);
    CredentialsProvider::from_fn(move || {
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

    pub(crate) fn secret(&self) -> PathBuf {
        self.0.join("secret")
    }

    /// Writes a new file and renames it over the old one.
    pub(crate) fn swap(&self, secret: &str) {
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
async fn unusable_secret_file_is_named_and_fails_no_call_with_a_valid_token() {
    let dir = Dir::new("torn");
    let endpoint = Endpoint::always(Reply::token(300));
    let tokens = tokens(CredentialsProvider::file("client", dir.secret()), &endpoint);
    let refused = async |reason: &str| {
        let error = tokens.ready().await.unwrap_err();
        assert!(error.to_string().contains("no credentials"), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        sleep(secs(31)).await;
    };
    refused("No such file").await;
    for (text, reason) in [
        ("", "empty"),
        ("two\nlines", "line end"),
        ("\u{0}", "control"),
    ] {
        dir.swap(text);
        refused(reason).await;
    }
    #[cfg(unix)]
    for mode in [0o602, 0o620, 0o777] {
        dir.swap("good");
        set_mode(&dir.secret(), mode);
        refused("chmod 600").await;
    }
    #[cfg(unix)]
    {
        fs::remove_file(dir.secret()).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(dir.secret())
            .status();
        assert!(made.unwrap().success());
        refused("not a regular file").await;
    }
    assert_eq!(endpoint.count(), 0);
    dir.swap("good");
    tokens.ready().await.unwrap();
    // Half of the last minute of its life.
    fs::remove_file(dir.secret()).unwrap();
    sleep(secs(270)).await;
    tokens.ready().await.unwrap();
    dir.swap("good");
    sleep(secs(31)).await;
    tokens.ready().await.unwrap();
    assert_eq!(secrets(&endpoint), ["good", "good"]);
}

#[tokio::test(start_paused = true)]
async fn hung_provider_times_out_and_later_calls_recover() {
    let hang = Arc::new(AtomicBool::new(true));
    let hangs = Arc::clone(&hang);
    let provider = CredentialsProvider::from_fn(move || {
        let hangs = hangs.load(Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Credentials::new("client", "secret")
        }
    });
    let tokens = tokens(provider, &Endpoint::default());
    let error = tokens.ready().await.unwrap_err();
    assert!(error.to_string().contains("took too long"), "{error}");
    hang.store(false, Ordering::SeqCst);
    sleep(secs(30)).await;
    tokens.ready().await.unwrap();
}

/// Also for a program that has a token, which the service refuses.
#[tokio::test(start_paused = true)]
async fn a_rotated_secret_ends_the_backoff_after_a_refusal_within_seconds() {
    for has_token in [false, true] {
        let secret = Arc::new(Mutex::new("old".to_owned()));
        let script = has_token.then(Reply::default).into_iter();
        let endpoint = Endpoint::scripted(script.chain([Reply::refusal()]));
        let dies = move |token: &str| has_token && number(token) == 1;
        let below = gateway(move |token, _| dies(token).then(dead));
        let service = Again(layer(&tokens(vault(&secret), &endpoint)).layer(below));
        let served = async || {
            let called = service.clone().oneshot(get(DATA)).await;
            called.is_ok_and(|it| it.status() == StatusCode::OK)
        };
        for _ in 0..30 {
            assert!(!served().await);
            sleep(secs(1)).await;
        }
        let old = vec!["old"; 1 + usize::from(has_token)];
        assert_eq!(secrets(&endpoint), old, "the same secret is not sent again");
        *secret.lock().unwrap() = "new".into();
        let start = Instant::now();
        while !served().await {
            sleep(secs(1)).await;
        }
        assert!(start.elapsed() <= secs(6), "{:?}", start.elapsed());
        assert_eq!(secrets(&endpoint), [old, vec!["new"]].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn refused_new_credentials_are_retried_at_most_twice_a_minute() {
    let endpoint = Endpoint::always(Reply::refusal());
    let made = AtomicU64::new(0);
    let provider = CredentialsProvider::from_fn(move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        async move { Credentials::new("client", format!("secret-{number}")) }
    });
    let tokens = tokens(provider, &endpoint);
    let start = Instant::now();
    while start.elapsed() < secs(3_600) {
        drop(tokens.ready().await);
        sleep(secs(1)).await;
    }
    // At most two token requests a minute, and two at the start.
    assert!(endpoint.count() <= 122, "{}", endpoint.count());
}
