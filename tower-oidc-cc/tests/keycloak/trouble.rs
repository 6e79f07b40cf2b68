//! Trouble with tokens, clients and servers while calls run.

use std::time::Duration;

use http::StatusCode;
use tower_oidc_cc::{Credentials, TokenError};

use crate::keycloak::{
    data::{Data, Failed},
    load::{CALLERS, Load},
    server::Keycloak,
    wire::{self, skip},
};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn credentials(client: &str) -> Credentials {
    Credentials::new(client, format!("secret-of-{client}")).unwrap()
}

/// Calls that are answered without a server, also when it is stopped.
fn load(data: &Data) -> Load<Failed> {
    let data = data.clone();
    Load::start(move || {
        let data = data.clone();
        async move { data.call_nobody().await }
    })
}

/// Calls that the server answers, each resent once if its token is refused.
pub(crate) fn load_again(data: &Data) -> Load<String> {
    let data = data.clone();
    Load::start(move || {
        let data = data.clone();
        async move {
            match data.call_again().await {
                Ok(StatusCode::OK) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        }
    })
}

pub(crate) fn token_error(failure: Failed) -> TokenError {
    failure
        .token()
        .cloned()
        .unwrap_or_else(|| panic!("{failure}"))
}

async fn revoke(keycloak: &Keycloak, client: &str, token: &str) {
    let form = format!("client_id={client}&client_secret=secret-of-{client}&token={token}");
    let revoke = keycloak.place("protocol/openid-connect/revoke");
    assert_eq!(wire::post(&revoke, &form).await.status, 200);
}

/// After the revocation of all tokens, one token request replaces them, and no call fails.
async fn one_more_token_serves_all(
    keycloak: &Keycloak,
    test: &str,
    data: &Data,
    load: &Load<String>,
) {
    load.served(1_000).await;
    assert_eq!(load.failures(), Vec::<String>::new());
    assert_eq!(keycloak.posts(test).await, [200, 200]);
    assert_eq!(data.tokens_seen(), 2);
    // Each refusal was for one of its callers, and each caller met at most one.
    let gets = keycloak.gets(test).await;
    let refused = gets.iter().filter(|status| **status == 401).count();
    assert!((1..=CALLERS).contains(&refused), "{refused}");
    assert!(gets.iter().all(|status| matches!(status, 200 | 401)));
}

/// The token requests of a test, once the server has answered so many; fewer if it does not.
pub(crate) async fn posts(keycloak: &Keycloak, test: &str, count: usize) -> Vec<u16> {
    for _ in 0..PATIENCE {
        let posts = keycloak.posts(test).await;
        if posts.len() >= count {
            return posts;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    keycloak.posts(test).await
}

#[tokio::test]
async fn five_second_tokens_are_renewed_under_load_without_failures() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let data = Data::new(keycloak, "short", credentials("short"));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let data = data.clone();
            tokio::spawn(async move {
                loop {
                    assert_eq!(data.call().await.unwrap(), 200);
                }
            })
        })
        .collect();
    let posts = posts(keycloak, "short", 4).await;
    for task in load {
        assert!(!task.is_finished(), "a call failed");
        task.abort();
    }
    assert!(posts.len() >= 4, "{posts:?}");
    assert!(posts.iter().all(|status| *status == 200), "{posts:?}");
    // Each token was sent, except perhaps the newest.
    assert!(posts.len() - data.tokens_seen() <= 1, "{posts:?}");
}

#[tokio::test]
async fn disabled_client_fails_no_call_while_its_token_is_valid() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let load = load(&Data::new(keycloak, "paused", credentials("paused")));
    load.served(100).await;
    keycloak.disable_client("paused").await;
    // The renewal is refused, and the token stays in use.
    skip(20 * HOUR).await;
    assert_eq!(posts(keycloak, "paused", 2).await, [200, 401]);
    load.served(1_000).await;
    assert!(load.failures().is_empty());
    // The token has expired. The server gets a request after each backoff, for any number of callers.
    skip(5 * HOUR).await;
    for _ in 0..20 {
        load.failed(100).await;
        skip(Duration::from_secs(30)).await;
    }
    // No token request is in flight now: every earlier caller has waited for it.
    load.failed(100).await;
    let refused = keycloak.posts("paused").await;
    assert!(refused[1..].iter().all(|status| *status == 401));
    assert!((5..=13).contains(&refused.len()), "{refused:?}");
    // One more request, within two minutes after the client is enabled again.
    keycloak.enable_client("paused").await;
    skip(Duration::from_secs(120)).await;
    load.served(100).await;
    for failure in load.failures() {
        let error = token_error(failure);
        assert!(error.oauth_error().is_some() && error.retry_after().is_some());
        assert_eq!(error.oauth_error(), Some("invalid_client"), "{error}");
    }
    load.served(1_000).await;
    assert!(load.failures().is_empty());
    let posts = keycloak.posts("paused").await;
    assert_eq!(posts.iter().filter(|status| **status == 200).count(), 2);
    assert_eq!(posts.last(), Some(&200));
}

#[tokio::test]
async fn token_revocation_under_load_fails_no_resent_call() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let data = Data::new(keycloak, "replayed", credentials("revoked"));
    let load = load_again(&data);
    load.served(200).await;
    revoke(keycloak, "revoked", &data.token()).await;
    one_more_token_serves_all(keycloak, "replayed", &data, &load).await;
}

/// Most checks while a test waits: half a minute in steps of 100 ms.
const PATIENCE: usize = 300;
