//! The health of a token, and the events that are logged.

use crate::support;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::Request;
use support::{
    Body, DATA, Endpoint, builder, dead, endpoint::Reply, get, layer, secs, seen,
    warnings::Warnings,
};
use tokio::time::{advance, sleep};
use tower::{Layer, ServiceExt, service_fn};

#[tokio::test(start_paused = true)]
async fn health_follows_a_token_through_its_life() {
    let endpoint = Endpoint::scripted([Reply::down(), Reply::token(1_000)]);
    endpoint.set(Reply::refusal());
    let tokens = builder().build(endpoint.clone());
    let health = tokens.health();
    assert!(!health.is_ready() && health.last_error.is_none());
    assert!(health.to_string().contains("token 0 is absent"), "{health}");
    assert!(health.endpoint.starts_with("https://sso.example.com/auth/"));
    assert_eq!(health.next_attempt, secs(0));

    let error = tokens.ready().await.unwrap_err();
    let health = tokens.health();
    assert!(!health.is_ready());
    assert!(health.last_error.as_ref().unwrap().is_transient());
    assert_eq!(health.next_attempt, error.retry_after().unwrap());

    sleep(error.retry_after().unwrap()).await;
    tokens.ready().await.unwrap();
    advance(secs(100)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error.is_none());
    assert!(health.to_string().contains("token 1 is"), "{health}");
    assert_eq!(health.last_success, Some(secs(100)));
    assert!(health.life_left.unwrap() <= secs(900));
    assert!(secs(600) <= health.next_attempt && health.next_attempt <= secs(700));

    // The renewal is refused: a warning, while calls go on.
    sleep(secs(750)).await;
    let health = tokens.health();
    assert!(health.is_ready() && health.last_error.as_ref().unwrap().oauth_error().is_some());
    sleep(secs(200)).await;
    assert!(!tokens.health().is_ready());
    assert_eq!(tokens.health().life_left, None);
}

#[tokio::test(start_paused = true)]
async fn health_shows_a_hung_request_with_endpoint_and_duration() {
    let tokens = builder().build(Endpoint::always(Reply::hang()));
    let waiter = tokens.clone();
    drop(tokio::spawn(async move { waiter.ready().await }));
    sleep(secs(2)).await;
    let health = tokens.health();
    assert_eq!(health.waiting_for.unwrap().as_secs(), 2);
    let text = health.to_string();
    assert!(
        text.contains("waiting for https://sso.example.com/auth/"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn health_shows_refusals_and_acceptances_of_the_service() {
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
    // The wall clock of this test is the clock of the machine, which advances a little.
    assert_eq!(health.refused_for.unwrap().as_secs(), 30);
    assert_eq!(health.last_success.unwrap().as_secs(), 30);
    let text = health.to_string();
    assert!(
        text.contains("token 2 is doubted; refused for 30 s"),
        "{text}"
    );
    *well.lock().unwrap() = true;
    drop(service.oneshot(get(DATA)).await.unwrap());
    let health = tokens.health();
    assert_eq!(health.refused_for, None);
    assert!(health.to_string().contains("token 2 is fresh"), "{health}");
}

#[tokio::test(start_paused = true)]
async fn failing_endpoint_is_logged_immediately_and_then_every_minute() {
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

    // A change of state is reported at once.
    let before = told();
    endpoint.set(Reply::refusal());
    let asked = endpoint.count();
    while endpoint.count() == asked {
        sleep(secs(1)).await;
        drop(tokens.ready().await);
    }
    assert_eq!(told(), before + 1);
}
