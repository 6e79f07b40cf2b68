//! What happens to tokens, clients and servers while calls run.

use std::time::Duration;

use tower_oidc_cc::{Credentials, Tokens};

use crate::{
    data::Data,
    server::Keycloak,
    wire::{self, skip},
};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn credentials(client: &str) -> Credentials {
    Credentials::new(client, format!("secret-of-{client}")).unwrap()
}

/// Lets a hundred calls go by; none may fail.
async fn calls_go_on(data: &Data) {
    for _ in 0..100 {
        data.call_nobody().await.unwrap();
    }
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
async fn tokens_of_five_seconds_are_renewed_under_load_and_no_call_fails() {
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
    // Each token was sent; the newest may have come a moment ago.
    assert!(posts.len() - data.tokens_seen() <= 1, "{posts:?}");
}

#[tokio::test]
async fn a_client_that_is_disabled_and_enabled_again_costs_no_call_while_its_token_lives() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let data = Data::new(keycloak, "paused", credentials("paused"));
    calls_go_on(&data).await;
    keycloak.disable_client("paused").await;
    // The renewal is refused, and the token goes on.
    skip(20 * HOUR).await;
    assert_eq!(posts(keycloak, "paused", 2).await, [200, 401]);
    calls_go_on(&data).await;
    // The token is gone. The server is asked once, and then left alone.
    skip(5 * HOUR).await;
    let error = data.tokens.ready().await.unwrap_err();
    assert_eq!(error.oauth_error(), Some("invalid_client"), "{error}");
    for _ in 0..100 {
        assert!(data.tokens.ready().await.unwrap_err().is_rejected());
    }
    assert_eq!(keycloak.posts("paused").await, [200, 401, 401]);
    keycloak.enable_client("paused").await;
    let error = data.tokens.ready().await.unwrap_err();
    skip(error.retry_after().unwrap()).await;
    calls_go_on(&data).await;
    assert_eq!(keycloak.posts("paused").await, [200, 401, 401, 200]);
}

#[tokio::test]
async fn a_revoked_token_is_replaced_by_one_request() {
    let Some(keycloak) = Keycloak::shared().await else {
        return;
    };
    let data = Data::new(keycloak, "revoked", credentials("revoked"));
    assert_eq!(data.call().await.unwrap(), 200);
    let form = format!(
        "client_id=revoked&client_secret=secret-of-revoked&token={}",
        data.token()
    );
    let revoke = keycloak.place("protocol/openid-connect/revoke");
    assert_eq!(wire::post(&revoke, &form).await.status, 200);
    // Those on their way with the dead token may hear of it; whoever calls after them does not.
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let data = data.clone();
            tokio::spawn(async move { data.call().await.unwrap() })
        })
        .collect();
    for call in calls {
        let status = call.await.unwrap();
        assert!(status == 401 || status == 200, "{status}");
    }
    assert_eq!(data.call().await.unwrap(), 200);
    assert_eq!(data.tokens_seen(), 2);
    assert_eq!(keycloak.posts("revoked").await, [200, 200]);
}

#[tokio::test]
async fn a_server_that_stops_and_starts_again_costs_no_call_while_the_token_lives() {
    let Some(keycloak) = Keycloak::own("restarted").await else {
        return;
    };
    let data = Data::new(&keycloak, "warm", credentials("post"));
    let cold =
        Tokens::builder(keycloak.endpoint("cold"), credentials("post")).build(wire::client());
    calls_go_on(&data).await;
    assert_eq!(keycloak.posts("warm").await, [200]);
    keycloak.stop().await;
    // The renewal fails, again and again, and the token goes on.
    skip(20 * HOUR).await;
    for _ in 0..5 {
        let error = cold.ready().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        skip(error.retry_after().unwrap()).await;
        calls_go_on(&data).await;
    }
    keycloak.resume().await;
    // A healthy server is noticed within one backoff, which is half a minute at most.
    skip(Duration::from_secs(30)).await;
    assert_eq!(posts(&keycloak, "warm", 2).await, [200, 200]);
    cold.ready().await.unwrap();
    assert_eq!(keycloak.posts("cold").await, [200]);
    calls_go_on(&data).await;
    assert_eq!(data.tokens_seen(), 2);
}

/// How often something is looked for that comes in seconds: half a minute in steps of 100 ms.
const PATIENCE: usize = 300;
