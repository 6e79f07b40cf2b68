//! Two tokens: clocks that are behind, tokens that die early, and roles that are granted later.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use http::{Request, Response, StatusCode};
use support::{
    Again, Body, DATA, DAY, Endpoint, HOUR, by_age, dead, endpoint::Reply, gateway, get,
    is_worth_a_resend, layer, number, refused, secs, settle, timed, unauthorized,
};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceExt};
use tower_oidc_cc::{Cause, Outcome};

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_behind_delays_the_first_success_by_its_own_lag() {
    for life in [1_200, DAY] {
        for behind in [1, 5, 20, 60, 90, 300, 700] {
            let endpoint = Endpoint::always(Reply::token(life));
            let below = by_age(&endpoint, move |age| age >= secs(behind));
            let service = layer(&timed().build(endpoint.clone())).layer(below);
            let start = Instant::now();
            while refused(&service, 1, 1).await == [0] {}
            let first = start.elapsed();
            assert!(first <= secs(behind + 5), "{life}, {behind}: {first:?}");
            let posts = endpoint.posts();
            let early = posts.iter().filter(|it| it.at - start < secs(60));
            assert_eq!(early.count(), 2, "one refresh at the start");
            // From then on, few calls meet a token that is too young, unless it ends before the next one is valid.
            let later = refused(&service, 1, behind).await;
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
        drop(refused(&service, 1, behind + 5).await);
        let pace = if life == DAY { 5 } else { 1 };
        let refused = refused(&service, pace, 20 * life.min(2 * HOUR)).await;
        assert_eq!(refused, [0; 0], "{life}, {behind}");
    }
}

/// The renewed token may be as dead as the one that it replaces.
#[tokio::test(start_paused = true)]
async fn a_revocation_after_a_renewal_is_healed_by_the_call_that_meets_it() {
    for after in [0, 30, 600, 5_000, 20_000] {
        let endpoint = Endpoint::default();
        let revoked = Arc::new(Mutex::new(None::<Instant>));
        let at = Arc::clone(&revoked);
        let below = by_age(&endpoint, move |age| {
            at.lock().unwrap().is_none_or(|at| age < at.elapsed())
        });
        let service = Again(Again(layer(&timed().build(endpoint.clone())).layer(below)));
        assert_eq!(refused(&service, 1, 60).await, [0; 0]);
        while endpoint.count() == 1 {
            sleep(secs(10)).await;
        }
        assert_eq!(refused(&service, 1, after).await, [0; 0]);
        *revoked.lock().unwrap() = Some(Instant::now());
        sleep(secs(1)).await;
        assert_eq!(refused(&service, 1, HOUR).await, [0; 0], "{after}");
        assert_eq!(endpoint.count(), 3, "{after}");
    }
}

/// Keycloak's "not before" has whole seconds.
#[tokio::test(start_paused = true)]
async fn a_revocation_that_takes_the_next_second_of_tokens_is_healed_in_two() {
    let (endpoint, start) = (Endpoint::default(), Instant::now());
    let below = by_age(&endpoint, move |age| {
        let issued = start.elapsed() - age;
        start.elapsed() < secs(60) || issued > secs(61)
    });
    let service = Again(layer(&timed().build(endpoint.clone())).layer(below));
    let refused = refused(&service, 1, HOUR).await;
    assert!(
        refused.iter().all(|at| (60..63).contains(at)),
        "{refused:?}"
    );
}

/// From 225 s on all of them, and shorter lives the first four times.
#[tokio::test(start_paused = true)]
async fn tokens_that_die_early_fail_no_resent_call_at_sixteen_requests_an_hour() {
    let lives = [5, 26, 60, 225, 240, 300, 900].map(|life| (life, 0));
    for (life, late) in lives.into_iter().chain([(225, 3)]) {
        let endpoint = Endpoint::always(Reply::default().after(secs(late)));
        let below = by_age(&endpoint, move |age| age < secs(life));
        let service = Again(layer(&timed().build(endpoint.clone())).layer(below));
        let good = if life < 225 { 5 * life } else { 12 * HOUR };
        assert_eq!(refused(&service, 1, good).await, [0; 0], "{life}");
        drop(refused(&service, 1, 6 * HOUR).await);
        let posts: Vec<_> = endpoint.posts().iter().skip(1).map(|it| it.at).collect();
        for (at, post) in posts.iter().enumerate() {
            let hour = posts[at..].iter().filter(|it| **it - *post < secs(HOUR));
            assert!(hour.count() <= 16, "{life}");
            let next = posts.get(at + 1).map_or(secs(0), |next| *next - *post);
            assert!(next <= secs(life.max(301) + 1), "{life}: {next:?}");
        }
    }
}

/// A call that was sent before its token died, and is accepted while that token is replaced, shows no refusing route.
#[tokio::test(start_paused = true)]
async fn a_late_success_takes_no_refresh_from_the_next_tokens_that_die_early() {
    let endpoint = Endpoint::always(Reply::default().after(secs(2)));
    let tokens = timed().build(endpoint.clone());
    let below = by_age(&endpoint, |age| age < secs(300));
    let late = below.clone().then(|response| async {
        sleep(secs(4)).await;
        response
    });
    let late = layer(&tokens).layer(late);
    let service = Again(layer(&tokens).layer(below));
    for _ in 0..12 {
        assert_eq!(refused(&service, 1, 200).await, [0; 0]);
        while endpoint.posts().last().unwrap().at.elapsed() < secs(298) {
            sleep(secs(1)).await;
        }
        drop(tokio::spawn(late.clone().oneshot(get(DATA))));
        assert_eq!(refused(&service, 1, 10).await, [0; 0]);
    }
}

/// A service whose route needs a role that tokens have from `granted` on.
fn lacks_role(
    endpoint: &Endpoint,
    granted: &Arc<Mutex<Option<Instant>>>,
) -> impl Fn(&str, &Request<Body>) -> Option<Response<String>> + Clone + Send + Sync + 'static {
    let (endpoint, granted) = (endpoint.clone(), Arc::clone(granted));
    move |token, request| {
        let granted = *granted.lock().unwrap();
        let has_role = granted.is_some_and(|at| endpoint.age(token) <= at.elapsed());
        let is_open = request.uri().query() != Some("role");
        (!is_open && !has_role).then(|| unauthorized(ROLE))
    }
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
        let service = Again(
            layer(&timed().build(endpoint.clone())).layer(gateway(lacks_role(&endpoint, &granted))),
        );
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
        let took = start.elapsed();
        assert!(took <= secs(within), "{missing}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_lacks_a_role_is_sent_once_more_with_a_new_token() {
    let endpoint = Endpoint::always(Reply::default().after(secs(2)));
    let granted = Arc::default();
    let tokens = timed().build(endpoint.clone());
    let service = layer(&tokens).layer(gateway(lacks_role(&endpoint, &granted)));
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
    let service = Again(
        layer(&timed().build(endpoint.clone())).layer(gateway(lacks_role(&endpoint, &granted))),
    );
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
    let count = endpoint.count();
    assert!((24..=30).contains(&count), "{count}");
}

#[tokio::test(start_paused = true)]
async fn missing_roles_take_no_refresh_from_a_dead_token() {
    let (endpoint, granted) = (Endpoint::default(), Arc::default());
    let is_dead = Arc::new(AtomicBool::new(false));
    let (roles, says) = (lacks_role(&endpoint, &granted), Arc::clone(&is_dead));
    let below = gateway(move |token, request| {
        let is_first = number(token) == 5 && says.load(Ordering::SeqCst);
        if is_first {
            Some(dead())
        } else {
            roles(token, request)
        }
    });
    let service = Again(layer(&timed().build(endpoint.clone())).layer(below));
    while endpoint.count() < 5 {
        drop(service.clone().oneshot(closed()).await.unwrap());
        drop(service.clone().oneshot(get(DATA)).await.unwrap());
        advance(secs(10)).await;
    }
    is_dead.store(true, Ordering::SeqCst);
    assert_eq!(refused(&service, 1, 100).await, [0; 0]);
    assert_eq!(endpoint.count(), 6);
}
