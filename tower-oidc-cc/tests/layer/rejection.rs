//! Refused tokens: the rule, the held call, the resend.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use support::{
    Again, Body, DATA, DAY, Data, Endpoint, HOUR, at_once, bare, builder, dead, endpoint::Reply,
    gateway, get, layer, number, refused, secs, seen, settle, tokens, unauthorized,
};
use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, advance, sleep},
};
use tower::{BoxError, Layer, ServiceExt, limit::GlobalConcurrencyLimitLayer, service_fn};
use tower_oidc_cc::{Cause, DeadlineAt, Outcome};

/// A name, and a 401.
type Form = (&'static str, fn() -> Response<String>);

/// Six forms of a 401 that refuses a token.
const FORMS: [Form; 6] = [
    ("challenge", dead),
    ("empty", || bare("")),
    ("text", || bare("Unauthorized")),
    ("JSON", || bare(r#"{"message":"Unauthorized"}"#)),
    ("HTML", || bare("<html><body>401</body></html>")),
    ("OData", || bare(r#"{"odata.error":{"code":"401"}}"#)),
];

/// A service that refuses the first `refused` tokens as dead.
fn revoking(refused: usize) -> impl Data<Error = Infallible> {
    gateway(move |token, _| (number(token) <= refused).then(dead))
}

fn found(response: &Response<String>) -> &Cause {
    response.extensions().get().unwrap()
}

/// Each form of a 401, at real lives of 5, 20 and 45 minutes of a token that claims 24 hours, over
/// a day with a call every five seconds.
#[tokio::test(start_paused = true)]
async fn token_revoked_early_fails_no_resent_call() {
    for (name, form) in FORMS {
        for minutes in [5, 20, 45] {
            for again in [false, true] {
                let endpoint = Endpoint::default();
                let (tokens, issued) = (builder().build(endpoint.clone()), endpoint.clone());
                let dies = move |token: &str| issued.age(token) >= secs(60 * minutes);
                let below = gateway(move |token, _| dies(token).then(form));
                let alone = layer(&tokens).layer(below);
                let (failed, requests) = match again {
                    false => (refused(&alone, 5, DAY).await.len(), endpoint.count()),
                    true => (refused(&Again(alone), 5, DAY).await.len(), 0),
                };
                assert!(failed <= requests, "{name}, {minutes} min: {failed}");
                let hourly = endpoint.count() as f64 / 24.0;
                assert!(
                    hourly <= 60.0 / minutes as f64 + 0.2,
                    "{name}, {minutes}: {hourly}"
                );
                assert!(tokens.health().is_ready());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn constant_refusals_cause_at_most_sixteen_refreshes_an_hour() {
    let endpoint = Endpoint::default();
    let refusing = gateway(|_, _| Some(bare("")));
    let service = Again(layer(&builder().build(endpoint.clone())).layer(refusing));
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let service = service.clone();
        callers.spawn(async move { refused(&service, 1, HOUR - 1).await.len() });
    }
    let refused = callers.join_all().await;
    assert!(refused.iter().all(|count| *count > 3_000), "{refused:?}");
    // The first token and sixteen refreshes.
    let count = endpoint.count();
    assert!((13..=17).contains(&count), "{count}");
}

#[tokio::test(start_paused = true)]
async fn revocation_beside_a_refusing_route_fails_at_most_fifteen_calls() {
    for revoked in [HOUR, HOUR + 100, HOUR + 700, HOUR + 1_500] {
        let endpoint = Endpoint::default();
        let tokens = builder().build(endpoint.clone());
        let issued = endpoint.clone();
        let start = Instant::now();
        let below = gateway(move |token, request| {
            let since = start.elapsed().checked_sub(secs(revoked));
            let is_revoked = since.is_some_and(|since| issued.age(token) > since);
            (request.uri().path().ends_with("/3") || is_revoked).then(|| bare(""))
        });
        let service = Again(layer(&tokens).layer(below));
        let mut failed = 0;
        for call in 0..2 * HOUR {
            // For a quarter of an hour the refusing route is alone.
            let route = if (1_800..2_700).contains(&call) {
                3
            } else {
                call % 10
            };
            let request = get(&format!("{DATA}/{route}"));
            let response = service.clone().oneshot(request).await.unwrap();
            failed += usize::from(response.status() != StatusCode::OK && route != 3);
            sleep(secs(1)).await;
        }
        assert!(failed <= 15, "{revoked}: {failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn single_stray_401_fails_no_resent_call() {
    for reply in [Reply::default(), Reply::down(), Reply::hang()] {
        let endpoint = Endpoint::scripted([Reply::default()]);
        endpoint.set(reply);
        let refuse = Arc::new(AtomicBool::new(true));
        let below = gateway(move |_, _| refuse.swap(false, Ordering::SeqCst).then(|| bare("")));
        let service = Again(layer(&builder().build(endpoint)).layer(below));
        assert_eq!(refused(&service, 1, HOUR).await, [0; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn revoked_token_is_replaced_within_one_backoff_after_an_outage() {
    let endpoint = Endpoint::scripted([Reply::default()]);
    endpoint.set(Reply::down());
    let service = Again(layer(&builder().build(endpoint.clone())).layer(revoking(1)));
    assert_eq!(refused(&service, 1, 600).await.len(), 600);
    // The first refresh takes a unit of the bucket. Its repetitions follow the backoffs, at no cost.
    assert!(
        (20..100).contains(&endpoint.count()),
        "{}",
        endpoint.count()
    );
    endpoint.heal();
    let failed = refused(&service, 1, 600).await.len();
    assert!(failed <= 31, "{failed}");
}

#[tokio::test(start_paused = true)]
async fn refusal_is_held_until_refresh_deadline_or_ten_seconds() {
    for (delay, deadline, held, replaced) in [
        (2, None, 2, true),
        (2, Some(5), 2, true),
        (8, Some(5), 5, false),
        (60, None, 10, false),
        (60, Some(30), 10, false),
    ] {
        let endpoint = Endpoint::scripted([Reply::default()]);
        endpoint.set(Reply::default().after(secs(delay)));
        let tokens = builder().timeout(secs(100)).build(endpoint);
        tokens.ready().await.unwrap();
        let service = layer(&tokens).layer(revoking(1));
        let (start, mut request) = (Instant::now(), get(DATA));
        if let Some(deadline) = deadline {
            request
                .extensions_mut()
                .insert(DeadlineAt::new((start + secs(deadline)).into_std()));
        }
        let response = service.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let took = start.elapsed();
        let most = secs(held);
        assert!(
            took <= most && took + secs(1) > most,
            "{delay} {deadline:?}: {took:?}"
        );
        // A timeout around the call at the deadline gets the refusal as well.
        assert!(deadline.is_none_or(|deadline| took < secs(deadline)));
        assert_eq!(names_newer_token(found(&response)), replaced, "{delay}");
        assert!(support::is_worth_a_resend(&response));
    }
}

#[tokio::test(start_paused = true)]
async fn a_doubted_token_delays_other_calls_by_one_second_at_most() {
    for (reply, most, token) in [
        (Reply::hang(), secs(1), 1),
        (Reply::default().after(secs(3)), secs(1), 1),
        (
            Reply::default().after(Duration::from_millis(200)),
            Duration::from_millis(200),
            2,
        ),
    ] {
        let endpoint = Endpoint::scripted([Reply::default()]);
        endpoint.set(reply);
        let below = gateway(|_, request| request.uri().path().ends_with("bad").then(dead));
        let service = layer(&builder().build(endpoint)).layer(below);
        drop(service.clone().oneshot(get(DATA)).await.unwrap());
        let refused = tokio::spawn(service.clone().oneshot(get(&format!("{DATA}/bad"))));
        settle().await;
        let start = Instant::now();
        for _ in 0..100 {
            let response = service.clone().oneshot(get(DATA)).await.unwrap();
            assert_eq!(response.into_body(), format!("Bearer canary-token-{token}"));
        }
        assert!(
            start.elapsed() <= most + Duration::from_millis(2),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(refused.await.unwrap().unwrap().status(), 401);
    }
}

/// A layer below that turns responses into errors needs no line of the user: its errors carry their outcome. A response
/// has it in its extensions.
#[tokio::test(start_paused = true)]
async fn an_outcome_is_read_from_extensions_and_from_errors_of_any_depth() {
    for depth in [None, Some(0), Some(1), Some(2)] {
        let endpoint = Endpoint::default();
        let service =
            layer(&tokens(&endpoint)).layer(service_fn(move |request: Request<Body>| async move {
                let mut response = Response::new(String::new());
                if seen(&request) != "Bearer canary-token-1" {
                    return Ok(response);
                }
                let Some(depth) = depth else {
                    response.extensions_mut().insert(Outcome::TokenRefused);
                    return Ok(response);
                };
                let refused: BoxError = Cause::new(Outcome::TokenRefused).into();
                let wrap = |error, _| BoxError::from(std::io::Error::other::<BoxError>(error));
                Err((0..depth).fold(refused, wrap))
            }));
        let refused = service.clone().oneshot(get(DATA)).await;
        let next = refused.as_ref().map_or_else(ToString::to_string, |it| {
            found(it).next.clone().unwrap().into_owned()
        });
        assert!(next.contains(NEWER), "{refused:?}");
        assert!(service.oneshot(get(DATA)).await.is_ok());
        assert_eq!(endpoint.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn thousand_refused_calls_are_resent_after_one_refresh() {
    let endpoint = Endpoint::always(Reply::token(86_400).after(secs(1)));
    let barrier = Arc::new(Barrier::new(1_000));
    let below = service_fn(move |request: Request<Body>| {
        let barrier = Arc::clone(&barrier);
        async move {
            let token = seen(&request);
            if token != "Bearer canary-token-1" {
                return Ok::<_, Infallible>(Response::new(token));
            }
            barrier.wait().await;
            Ok(dead())
        }
    });
    let service = Again(layer(&tokens(&endpoint)).layer(below));
    for response in at_once(&service, 1_000).await {
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-2");
    }
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn held_refusal_does_not_deadlock_above_a_limit_of_one() {
    let endpoint = Endpoint::default();
    let limit = GlobalConcurrencyLimitLayer::new(1);
    let service = Again(layer(&tokens(&endpoint)).layer(limit.layer(revoking(1))));
    for response in at_once(&service, 20).await {
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-2");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_authorization_header_is_reported_without_a_refresh() {
    let endpoint = Endpoint::default();
    let service = layer(&tokens(&endpoint)).layer(gateway(|_, _| {
        Some(unauthorized("no Authorization header found"))
    }));
    for _ in 0..100 {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        let cause = found(&response);
        assert_eq!(cause.outcome, Outcome::NoHeader);
        assert!(cause.next.as_ref().unwrap().contains("proxy"), "{cause:?}");
        advance(secs(60)).await;
    }
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn late_refusal_of_an_old_token_is_ignored() {
    let endpoint = Endpoint::default();
    let (release, held) = tokio::sync::watch::channel(false);
    let service = layer(&tokens(&endpoint)).layer(service_fn(move |request: Request<Body>| {
        let mut held = held.clone();
        async move {
            let token = seen(&request);
            if token != "Bearer canary-token-1" {
                return Ok::<_, Infallible>(Response::new(token));
            }
            if request.uri().query() == Some("late") {
                held.wait_for(|go| *go).await.unwrap();
            }
            Ok(dead())
        }
    }));
    let late = tokio::spawn(service.clone().oneshot(get(&format!("{DATA}?late"))));
    settle().await;
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    let next = service.clone().oneshot(get(DATA)).await.unwrap();
    assert_eq!(next.into_body(), "Bearer canary-token-2");
    // Long after, so that only the generation can protect the new token, and not the bucket.
    advance(secs(3_700)).await;
    release.send(true).unwrap();
    assert_eq!(
        late.await.unwrap().unwrap().status(),
        StatusCode::UNAUTHORIZED
    );
    let body = service.oneshot(get(DATA)).await.unwrap().into_body();
    assert_eq!(body, "Bearer canary-token-2");
    assert_eq!(endpoint.count(), 2);
}

/// Whether the cause states that a newer token is in use.
fn names_newer_token(cause: &Cause) -> bool {
    cause.next.as_ref().unwrap().contains(NEWER)
}

const NEWER: &str = "another one is in use";
