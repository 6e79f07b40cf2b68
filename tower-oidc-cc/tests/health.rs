//! What can be read about the token, and what is told.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/support.rs"]
mod support;

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use http::Request;
use support::{
    Body, DATA, Endpoint, builder, dead, endpoint::Reply, get, layer, secs, settle, unauthorized,
};
use tokio::time::{advance, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_oidc_cc::{Event, Reason, TokenBudget, TokenSource};

/// A handle, and what it told in short.
fn telling(endpoint: &Endpoint) -> (TokenSource, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let tokens = builder().on_event(move |event| {
        let line = match event {
            Event::Issued {
                generation, reason, ..
            } => format!("issued {generation} {reason:?}"),
            Event::Failed { reason, .. } => format!("failed {reason:?}"),
            Event::Dropped { generation, .. } => format!("dropped {generation}"),
            Event::Expired { generation, .. } => format!("expired {generation}"),
            Event::Waited { .. } => return,
            Event::CredentialsChanged | _ => format!("{event:?}"),
        };
        listener.lock().unwrap().push(line);
    });
    (tokens.build(endpoint.clone()), told)
}

#[tokio::test(start_paused = true)]
async fn health_follows_a_token_through_its_life() {
    let endpoint = Endpoint::scripted([Reply::down(), Reply::token(1_000)]);
    endpoint.set(Reply::refusal());
    let budget = TokenBudget::per_hour(NonZeroU32::new(20).unwrap());
    let tokens = builder().budget(budget).build(endpoint.clone());
    let health = tokens.health();
    assert!(!health.is_ready() && health.last_error().is_none());
    assert_eq!((health.generation(), health.budget_left()), (0, 10));
    assert_eq!(health.next_attempt(), secs(0));

    let error = tokens.ready().await.unwrap_err();
    let health = tokens.health();
    assert!(!health.is_ready());
    assert!(health.last_error().unwrap().is_transient());
    assert_eq!(health.next_attempt(), error.retry_after().unwrap());
    assert_eq!(health.budget_left(), 9);

    sleep(error.retry_after().unwrap()).await;
    tokens.ready().await.unwrap();
    advance(secs(100)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error().is_none());
    assert_eq!(health.generation(), 1);
    assert_eq!(health.age(), Some(secs(100)));
    assert!(health.life_left().unwrap() <= secs(900));
    assert!(secs(600) <= health.next_attempt() && health.next_attempt() <= secs(700));

    // The renewal is refused: a warning, while calls go on.
    sleep(secs(750)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error().unwrap().is_rejected());
    sleep(secs(200)).await;
    assert!(!tokens.health().is_ready());
    assert_eq!(tokens.health().age(), None);
}

#[tokio::test(start_paused = true)]
async fn each_request_is_told_with_its_reason() {
    let endpoint = Endpoint::scripted([Reply::token(100), Reply::token(7_200)]);
    let (tokens, told) = telling(&endpoint);
    let lines = || std::mem::take(&mut *told.lock().unwrap());
    tokens.ready().await.unwrap();
    assert_eq!(lines(), ["issued 1 Start"]);
    sleep(secs(90)).await;
    assert_eq!(lines(), ["issued 2 Schedule"]);
    let refused = layer(&tokens).layer(service_fn(async |request: Request<Body>| {
        Ok::<_, Infallible>(match request.uri().query() {
            Some("role") => unauthorized("insufficient_scope"),
            _ => dead(),
        })
    }));
    advance(secs(3_601)).await;
    let role = refused.clone().oneshot(get(&format!("{DATA}?role")));
    drop(role.await.unwrap());
    settle().await;
    assert_eq!(lines(), ["issued 3 Role"]);
    drop(refused.oneshot(get(DATA)).await.unwrap());
    endpoint.set(Reply::down());
    assert!(tokens.ready().await.is_err());
    assert_eq!(lines(), ["dropped 3", "failed Dead"]);
    endpoint.set(Reply::token(10));
    sleep(secs(2)).await;
    tokens.ready().await.unwrap();
    endpoint.set(Reply::down());
    sleep(secs(11)).await;
    let lines = lines();
    assert_eq!(lines[0], "issued 4 Dead");
    assert!(
        lines[1..lines.len() - 1]
            .iter()
            .all(|l| l == "failed Schedule")
    );
    assert_eq!(lines.last().unwrap(), "expired 4");
    endpoint.set(Reply::token(10));
    sleep(secs(40)).await;
    tokens.ready().await.unwrap();
    assert_eq!(
        told.lock().unwrap()[0],
        format!("issued 5 {:?}", Reason::Expiry)
    );
}
