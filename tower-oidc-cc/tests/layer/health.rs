//! The health of a token, and what callbacks and logs tell of it.

use crate::support;

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use http::Request;
use support::{
    Body, DATA, Endpoint, builder, dead, endpoint::Reply, get, layer, secs, seen,
    warnings::Warnings,
};
use tokio::time::{advance, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_oidc_cc::RefreshPolicy;

#[tokio::test(start_paused = true)]
async fn health_follows_a_token_through_its_life() {
    let endpoint = Endpoint::scripted([Reply::down(), Reply::token(1_000)]);
    endpoint.set(Reply::refusal());
    let budget = NonZeroU32::new(20).unwrap();
    let tokens = builder().budget(budget).build(endpoint.clone());
    let health = tokens.health();
    assert!(!health.is_ready() && health.last_error().is_none());
    let text = health.to_string();
    assert!(
        text.contains("token 0") && text.contains("left: 10"),
        "{text}"
    );
    assert_eq!(health.next_attempt(), secs(0));

    let error = tokens.ready().await.unwrap_err();
    let health = tokens.health();
    assert!(!health.is_ready());
    assert!(health.last_error().unwrap().is_transient());
    assert_eq!(health.next_attempt(), error.retry_after().unwrap());
    assert!(health.to_string().contains("left: 9"), "{health}");

    sleep(error.retry_after().unwrap()).await;
    tokens.ready().await.unwrap();
    advance(secs(100)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error().is_none());
    assert!(health.to_string().contains("token 1 is"), "{health}");
    assert_eq!(health.last_success(), Some(secs(100)));
    assert!(health.life_left().unwrap() <= secs(900));
    assert!(secs(600) <= health.next_attempt() && health.next_attempt() <= secs(700));

    // The renewal is refused: a warning, while calls go on.
    sleep(secs(750)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error().unwrap().is_rejected());
    sleep(secs(200)).await;
    assert!(!tokens.health().is_ready());
    assert_eq!(tokens.health().life_left(), None);
}

#[tokio::test(start_paused = true)]
async fn health_promises_no_renewal_where_none_is_made() {
    let endpoint = Endpoint::default();
    let tokens = builder().policy(RefreshPolicy::OnExpiry).build(endpoint);
    tokens.ready().await.unwrap();
    let text = tokens.health().to_string();
    assert!(text.contains(": the last one has expired"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn health_says_what_the_service_thinks_and_what_comes_next() {
    let endpoint = Endpoint::default();
    let tokens = builder().build(endpoint.clone());
    assert!(tokens.health().to_string().contains("token 0 is absent"));
    let well = Arc::new(Mutex::new(false));
    let says = Arc::clone(&well);
    let service = layer(&tokens).layer(service_fn(move |request: Request<Body>| {
        let well = *says.lock().unwrap();
        async move {
            Ok::<_, Infallible>(if well {
                http::Response::new(seen(&request))
            } else {
                dead()
            })
        }
    }));
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    sleep(secs(30)).await;
    let health = tokens.health();
    assert!(health.is_ready(), "the refused one is still sent");
    // The wall clock of this test is the machine's, which goes on by a little.
    assert_eq!(health.refused_for().unwrap().as_secs(), 30);
    assert_eq!(health.last_success().unwrap().as_secs(), 30);
    assert_eq!(health.next_attempt().as_secs_f64().round(), 30.0);
    let text = health.to_string();
    assert!(
        text.contains("token 2 is refused; refused for 30 s"),
        "{text}"
    );
    assert!(text.contains("in 30 s: the service refuses it"), "{text}");
    *well.lock().unwrap() = true;
    drop(service.oneshot(get(DATA)).await.unwrap());
    let health = tokens.health();
    assert_eq!(health.refused_for(), None);
    assert!(health.to_string().contains("token 2 is fresh"), "{health}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_endpoint_is_told_of_at_once_and_then_once_a_minute() {
    let warnings = Warnings::default();
    let _guard = warnings.heard();
    let told = || warnings.of("token request failed");
    let endpoint = Endpoint::always(Reply::down());
    let tokens = builder().build(endpoint.clone());
    assert!(tokens.ready().await.is_err());
    assert_eq!(told(), 1);
    for _ in 0..600 {
        sleep(secs(1)).await;
        assert!(tokens.ready().await.is_err());
    }
    assert!(endpoint.count() > 20, "{}", endpoint.count());
    assert!((5..=11).contains(&told()), "{}", told());

    // Another state is told of at once.
    let before = told();
    endpoint.set(Reply::refusal());
    let asked = endpoint.count();
    while endpoint.count() == asked {
        sleep(secs(1)).await;
        drop(tokens.ready().await);
    }
    assert_eq!(told(), before + 1);
}
