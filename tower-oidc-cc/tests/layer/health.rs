//! The health of a token.

use crate::layer::support;

use support::{Endpoint, builder, endpoint::Reply, secs};
use tokio::time::{advance, sleep};

#[tokio::test(start_paused = true)]
async fn health_follows_a_token_through_its_life() {
    let endpoint = Endpoint::scripted([Reply::down(), Reply::token(1_000)]);
    endpoint.set(Reply::refusal());
    let tokens = builder().build(endpoint.clone());
    let health = tokens.health();
    assert!(!health.is_ready() && health.last_error.is_none());
    assert!(health.endpoint.starts_with("https://sso.example.com/auth/"));

    let error = tokens.ready().await.unwrap_err();
    let health = tokens.health();
    assert!(!health.is_ready());
    assert!(health.last_error.as_ref().unwrap().is_transient());

    sleep(error.retry_after().unwrap()).await;
    tokens.ready().await.unwrap();
    advance(secs(100)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error.is_none());
    assert_eq!(health.generation, 1);
    assert_eq!(health.last_success, Some(secs(100)));
    assert!(health.life_left.unwrap() <= secs(900));

    // The renewal is refused: a warning, while calls go on.
    sleep(secs(750)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error.as_ref().unwrap().oauth_error().is_some());
    sleep(secs(200)).await;
    assert!(!tokens.health().is_ready());
    assert_eq!(tokens.health().life_left, None);
}
