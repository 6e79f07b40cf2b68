//! Two tokens: clocks that are behind, tokens that die early, and roles that are granted later.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use support::{
    Again, Body, DATA, DAY, Endpoint, HOUR, dead, endpoint::Reply, get, is_worth_a_resend, layer,
    secs, seen, settle, timed, unauthorized,
};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_oidc_cc::{Cause, Outcome};

/// A service that accepts a token by its age.
fn by_age(
    endpoint: &Endpoint,
    accepts: impl Fn(Duration) -> bool + Clone + Send + Sync + 'static,
) -> impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let endpoint = endpoint.clone();
    service_fn(move |request: Request<Body>| {
        let token = seen(&request);
        let good = accepts(endpoint.age(&token));
        async move { Ok(if good { Response::new(token) } else { dead() }) }
    })
}

/// Calls once a second for `time`, and returns the seconds of the refused calls.
async fn refused(
    service: &(impl Service<Request<Body>, Response = Response<String>, Error: std::fmt::Debug> + Clone),
    time: Duration,
) -> Vec<u64> {
    let (mut refused, start) = (Vec::new(), Instant::now());
    while start.elapsed() < time {
        let at = start.elapsed().as_secs();
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        if response.status() != StatusCode::OK {
            refused.push(at);
        }
        sleep(secs(1)).await;
    }
    refused
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_behind_delays_the_first_success_by_its_own_lag() {
    for life in [1_200, DAY] {
        for behind in [1, 5, 20, 60, 90, 300, 700] {
            let endpoint = Endpoint::always(Reply::token(life));
            let below = by_age(&endpoint, move |age| age >= secs(behind));
            let service = layer(&timed().build(endpoint.clone())).layer(below);
            let start = Instant::now();
            while refused(&service, secs(1)).await == [0] {}
            let first = start.elapsed();
            assert!(first <= secs(behind + 5), "{life}, {behind}: {first:?}");
            let posts = endpoint.posts();
            let early = posts.iter().filter(|it| it.at - start < secs(60));
            assert_eq!(early.count(), 2, "one refresh at the start");
            // From then on, few calls meet a token that is too young, unless it ends before the next one is valid.
            let later = refused(&service, secs(behind)).await;
            let is_long = life >= 4 * behind;
            assert!(later.len() <= 12 || !is_long, "{life}, {behind}: {later:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_resent_call_fails_at_a_renewal_while_the_old_token_outlives_the_lag() {
    for (life, behind) in [
        (DAY, 600),
        (3_600, 90),
        (3_600, 700),
        (300, 20),
        (240, 20),
        (240, 45),
        (100, 5),
        (100, 18),
        (40, 7),
    ] {
        let endpoint = Endpoint::always(Reply::token(life));
        let below = by_age(&endpoint, move |age| age >= secs(behind));
        let service = Again(layer(&timed().build(endpoint.clone())).layer(below));
        drop(refused(&service, secs(behind + 5)).await);
        let refused = refused(&service, secs(20 * life.min(HOUR))).await;
        assert_eq!(refused, [0; 0], "{life}, {behind}");
    }
}

/// The renewed token may be as dead as the one that it replaces.
#[tokio::test(start_paused = true)]
async fn a_revocation_after_a_renewal_is_healed_by_the_call_that_meets_it() {
    for after in [0, 30, 600, 5_000, 20_000] {
        let endpoint = Endpoint::default();
        let revoked = Arc::new(Mutex::new(None::<Instant>));
        let (issued, at) = (endpoint.clone(), Arc::clone(&revoked));
        let below = service_fn(move |request: Request<Body>| {
            let token = seen(&request);
            let at = *at.lock().unwrap();
            let good = at.is_none_or(|at| issued.age(&token) < at.elapsed());
            async move { Ok::<_, Infallible>(if good { Response::new(token) } else { dead() }) }
        });
        let service = Again(Again(layer(&timed().build(endpoint.clone())).layer(below)));
        assert_eq!(refused(&service, secs(60)).await, [0; 0]);
        while endpoint.count() == 1 {
            sleep(secs(10)).await;
        }
        assert_eq!(refused(&service, secs(after)).await, [0; 0]);
        *revoked.lock().unwrap() = Some(Instant::now());
        sleep(secs(1)).await;
        assert_eq!(refused(&service, secs(HOUR)).await, [0; 0], "{after}");
        assert_eq!(endpoint.count(), 3, "{after}");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_that_die_early_fail_no_resent_call_at_sixteen_an_hour() {
    for life in [225, 240, 300, 900] {
        let endpoint = Endpoint::default();
        let below = by_age(&endpoint, move |age| age < secs(life));
        let service = Again(layer(&timed().build(endpoint.clone())).layer(below));
        assert_eq!(refused(&service, secs(12 * HOUR)).await, [0; 0], "{life}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_four_tokens_that_die_early_are_replaced_at_once() {
    for life in [5, 26, 60] {
        let endpoint = Endpoint::default();
        let below = by_age(&endpoint, move |age| age < secs(life));
        let service = Again(layer(&timed().build(endpoint.clone())).layer(below));
        assert_eq!(refused(&service, secs(5 * life)).await, [0; 0], "{life}");
        drop(refused(&service, secs(6 * HOUR)).await);
        let posts: Vec<_> = endpoint
            .posts()
            .iter()
            .skip(1)
            .map(|post| post.at)
            .collect();
        for (at, post) in posts.iter().enumerate() {
            let hour = posts[at..].iter().filter(|it| **it - *post < secs(HOUR));
            assert!(hour.count() <= 16, "{life}");
        }
    }
}

/// A service whose route needs a role that tokens have from `granted` on.
fn with_role(
    endpoint: &Endpoint,
    granted: &Arc<Mutex<Option<Instant>>>,
) -> impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let (endpoint, granted) = (endpoint.clone(), Arc::clone(granted));
    service_fn(move |request: Request<Body>| {
        let token = seen(&request);
        let granted = *granted.lock().unwrap();
        let has_role = granted.is_some_and(|at| endpoint.age(&token) <= at.elapsed());
        let is_open = request.uri().query() != Some("role");
        async move {
            Ok(if is_open || has_role {
                Response::new(token)
            } else {
                unauthorized(ROLE)
            })
        }
    })
}

const ROLE: &str =
    "Access token does not have the required scope/role: Missing required realm role";

fn closed() -> Request<Body> {
    get(&format!("{DATA}?role"))
}

#[tokio::test(start_paused = true)]
async fn a_granted_role_is_seen_within_five_minutes_or_within_an_hour_where_it_was_long_missing() {
    for (missing, within) in [(0, 301), (60, 301), (600, 601), (6 * HOUR, HOUR + 1)] {
        let (endpoint, granted) = (Endpoint::default(), Arc::default());
        let service =
            Again(layer(&timed().build(endpoint.clone())).layer(with_role(&endpoint, &granted)));
        let start = Instant::now();
        while start.elapsed() < secs(missing) {
            let response = service.clone().oneshot(closed()).await.unwrap();
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
            sleep(secs(1)).await;
        }
        sleep(secs(1)).await;
        *granted.lock().unwrap() = Some(Instant::now());
        let start = Instant::now();
        while service.clone().oneshot(closed()).await.unwrap().status() != StatusCode::OK {
            sleep(secs(1)).await;
        }
        assert!(
            start.elapsed() <= secs(within),
            "{missing}: {:?}",
            start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_lacks_a_role_is_sent_once_more_with_a_new_token() {
    let (endpoint, granted) = (
        Endpoint::always(Reply::default().after(secs(2))),
        Arc::default(),
    );
    let tokens = timed().build(endpoint.clone());
    let service = layer(&tokens).layer(with_role(&endpoint, &granted));
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    *granted.lock().unwrap() = Some(Instant::now());
    sleep(secs(301)).await;
    let start = Instant::now();
    let held = tokio::spawn(service.clone().oneshot(closed()));
    settle().await;
    // No doubt is cast: other calls go on with the token.
    let other = service.clone().oneshot(get(DATA)).await.unwrap();
    assert_eq!((other.status(), start.elapsed()), (StatusCode::OK, secs(0)));
    let refused = held.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), secs(2));
    let cause = refused.extensions().get::<Cause>().unwrap();
    assert!(is_worth_a_resend(&refused) && cause.outcome == Outcome::RoleMissing);
    let again = service.oneshot(closed()).await.unwrap();
    assert_eq!((again.status(), endpoint.count()), (StatusCode::OK, 2));
}

#[tokio::test(start_paused = true)]
async fn a_role_that_is_never_granted_costs_about_a_token_request_an_hour() {
    let (endpoint, granted) = (Endpoint::default(), Arc::default());
    let service =
        Again(layer(&timed().build(endpoint.clone())).layer(with_role(&endpoint, &granted)));
    let start = Instant::now();
    while start.elapsed() < secs(DAY) {
        let response = service.clone().oneshot(closed()).await.unwrap();
        let cause = response.extensions().get::<Cause>().unwrap();
        assert!(!is_worth_a_resend(&response));
        assert!(cause.next.as_ref().unwrap().contains("administrator"));
        let open = service.clone().oneshot(get(DATA)).await.unwrap();
        assert_eq!(open.status(), StatusCode::OK);
        sleep(secs(5)).await;
    }
    assert!(
        (24..=30).contains(&endpoint.count()),
        "{}",
        endpoint.count()
    );
}

#[tokio::test(start_paused = true)]
async fn missing_roles_take_no_refresh_from_a_dead_token() {
    let (endpoint, granted) = (Endpoint::default(), Arc::default());
    let is_dead = Arc::new(AtomicBool::new(false));
    let (below, says) = (with_role(&endpoint, &granted), Arc::clone(&is_dead));
    let below = service_fn(move |request: Request<Body>| {
        let is_first = seen(&request).ends_with("-5") && says.load(Ordering::SeqCst);
        let below = below.clone();
        async move {
            if is_first {
                return Ok::<_, Infallible>(dead());
            }
            below.oneshot(request).await
        }
    });
    let service = Again(layer(&timed().build(endpoint.clone())).layer(below));
    while endpoint.count() < 5 {
        drop(service.clone().oneshot(closed()).await.unwrap());
        drop(service.clone().oneshot(get(DATA)).await.unwrap());
        advance(secs(10)).await;
    }
    is_dead.store(true, Ordering::SeqCst);
    assert_eq!(refused(&service, secs(100)).await, [0; 0]);
    assert_eq!(endpoint.count(), 6);
}
