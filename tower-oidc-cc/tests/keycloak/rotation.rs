//! Secrets that change, and keys that are taken away, while calls run.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::task::JoinHandle;
use tower_oidc_cc::{Credentials, Provider};

use crate::{
    data::Data,
    server::Keycloak,
    trouble::{HOUR, posts},
    wire::skip,
};

/// Calls without an end, of which none may fail.
fn load(data: &Data) -> JoinHandle<Infallible> {
    let data = data.clone();
    tokio::spawn(async move {
        loop {
            assert_eq!(data.call().await.unwrap(), 200);
        }
    })
}

#[tokio::test]
async fn secret_rotation_under_load_fails_no_call() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let vault = Arc::new(Mutex::new("secret-of-rotated".to_owned()));
    let provider = Provider::from_fn({
        let vault = Arc::clone(&vault);
        move || {
            let secret = vault.lock().unwrap().clone();
            async { Credentials::new("rotated", secret) }
        }
    });
    let data = Data::new(keycloak, "rotated", provider);
    assert_eq!(data.call().await.unwrap(), 200);
    let load = load(&data);
    let secret = keycloak.rotate_secret("rotated").await;
    // The renewal uses the old secret and is refused. The token stays in use.
    skip(20 * HOUR).await;
    assert_eq!(posts(keycloak, "rotated", 2).await, [200, 401]);
    // The new secret is used after the backoff of the refusal.
    *vault.lock().unwrap() = secret;
    skip(Duration::from_secs(120)).await;
    assert_eq!(posts(keycloak, "rotated", 3).await, [200, 401, 200]);
    // The server's log shows the token before the client has read it.
    let is_read = async {
        while data.tokens_seen() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, is_read).await.unwrap();
    // Past the end of the first token.
    skip(5 * HOUR).await;
    assert_eq!(data.call().await.unwrap(), 200);
    assert!(!load.is_finished(), "a call failed");
    load.abort();
    assert_eq!(keycloak.posts("rotated").await, [200, 401, 200]);
    assert_eq!(data.tokens_seen(), 2);
}
