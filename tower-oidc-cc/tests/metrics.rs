//! What a metric counts beside what the servers saw.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

#[path = "support/support.rs"]
mod support;

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use support::{
    Body, DATA, Endpoint, SECRET, builder, dead, echo, endpoint::Reply, get, layer, secs, seen,
    settle,
};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_oidc_cc::{
    Credentials, Event, Outcome, Provider, Reason, TokenBudget, TokenEndpoint, TokenSource,
    TokenSourceBuilder,
};

/// Whatever was told, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Event>>>);

impl Told {
    fn by(&self, builder: TokenSourceBuilder) -> TokenSourceBuilder {
        let told = self.clone();
        builder.on_event(move |event| told.0.lock().unwrap().push(event.clone()))
    }

    fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|e| which(e)).count()
    }

    fn waits(&self) -> Vec<(Duration, Outcome)> {
        let told = self.0.lock().unwrap();
        let wait = |event: &Event| {
            let Event::Waited { took, outcome, .. } = event else {
                return None;
            };
            Some((*took, *outcome))
        };
        told.iter().filter_map(wait).collect()
    }
}

fn issued(event: &Event) -> bool {
    matches!(event, Event::Issued { .. })
}

fn failed(event: &Event) -> bool {
    matches!(event, Event::Failed { .. })
}

/// A data service that counts the calls that reach it.
fn counting(
    answer: impl Fn(&Request<Body>) -> Response<String> + Clone + Send + 'static,
) -> (
    impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static,
    Arc<Mutex<usize>>,
) {
    let calls = Arc::new(Mutex::new(0));
    let count = Arc::clone(&calls);
    let service = service_fn(move |request: Request<Body>| {
        *count.lock().unwrap() += 1;
        let response = answer(&request);
        async move { Ok(response) }
    });
    (service, calls)
}

#[tokio::test(start_paused = true)]
async fn calls_that_waited_are_told_and_all_others_found_a_fresh_token() {
    let endpoint = Endpoint::always(Reply::token(1_000).after(secs(3)));
    let told = Told::default();
    let tokens = told.by(builder()).build(endpoint.clone());
    let (data, calls) = counting(|request| Response::new(seen(request)));
    let service = layer(&tokens).layer(data);
    let mut waiting = tokio::task::JoinSet::new();
    for late in 0..10 {
        let service = service.clone();
        waiting.spawn(async move {
            // One after the other within half of the time that the token takes.
            sleep(Duration::from_millis(150 * late)).await;
            service.oneshot(get(DATA)).await.unwrap();
        });
    }
    waiting.join_all().await;
    for _ in 0..90 {
        service.clone().oneshot(get(DATA)).await.unwrap();
    }
    assert_eq!((*calls.lock().unwrap(), endpoint.count()), (100, 1));
    let mut waits = told.waits();
    waits.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    let expected = (0..10).map(|late| secs(3) - Duration::from_millis(150 * late));
    let expected: Vec<_> = expected.map(|took| (took, Outcome::Token)).collect();
    assert_eq!(waits, expected);
    // One request, ten waits, and of the other ninety calls nothing.
    assert_eq!(told.count(|_| true), 11);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_fails_and_a_caller_that_leaves_are_told_apart() {
    let endpoint = Endpoint::scripted([
        Reply::down().after(secs(2)),
        Reply::token(100).after(secs(4)),
    ]);
    let told = Told::default();
    let tokens = told.by(builder()).build(endpoint.clone());
    let (data, calls) = counting(|request| Response::new(seen(request)));
    let service = layer(&tokens).layer(data);

    assert!(service.clone().oneshot(get(DATA)).await.is_err());
    assert_eq!(told.waits(), [(secs(2), Outcome::Failure)]);
    // Refused at once: the result says so, and nobody waited.
    let error = tokens.ready().await.unwrap_err();
    assert_eq!(told.waits().len(), 1);

    sleep(error.retry_after().unwrap()).await;
    let impatient = timeout(secs(1), service.clone().oneshot(get(DATA)));
    assert!(impatient.await.is_err());
    assert_eq!(told.waits()[1..], [(secs(1), Outcome::Left)]);
    service.oneshot(get(DATA)).await.unwrap();
    assert_eq!(told.waits()[2..], [(secs(3), Outcome::Token)]);
    assert_eq!((*calls.lock().unwrap(), endpoint.count()), (1, 2));
    assert_eq!((told.count(failed), told.count(issued)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_across_two_drivers_is_told_once() {
    let endpoint = Endpoint::always(Reply::token(100).after(secs(2)));
    let told = Told::default();
    let tokens = told.by(builder()).build(endpoint.clone());
    // The first driver is on a runtime that goes down under it.
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut first = Box::pin(tokens.ready());
    {
        let _entered = other.enter();
        assert!(support::poll_once(first.as_mut()).is_none());
    }
    other.shutdown_background();
    first.await.unwrap();
    assert_eq!(told.waits().len(), 1);
    assert_eq!(told.waits()[0].1, Outcome::Token);
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_second_try_is_told_and_each_first_one_is_not() {
    let endpoint = Endpoint::default();
    let told = Told::default();
    let tokens = told.by(builder()).build(endpoint.clone());
    // The first two tokens are dead, and whatever is asked for with `?dead` finds its own so.
    let (data, calls) = counting(|request| match seen(request).as_str() {
        "Bearer canary-token-1" => dead(),
        _ if request.uri().query() == Some("dead") => dead(),
        token => Response::new(token.to_owned()),
    });
    let service = layer(&tokens).replay().layer(data);
    let mut made = 0;
    for uri in [DATA, DATA, &format!("{DATA}?dead"), DATA] {
        service.clone().oneshot(get(uri)).await.unwrap();
        made += 1;
        sleep(secs(120)).await;
    }
    let replayed = told.count(|event| matches!(event, Event::Replayed));
    assert_eq!(replayed, 2);
    assert_eq!(*calls.lock().unwrap(), made + replayed);
}

#[tokio::test(start_paused = true)]
async fn an_old_token_that_serves_while_its_renewal_fails_is_told() {
    let endpoint = Endpoint::scripted([Reply::token(1_000)]);
    endpoint.set(Reply::down());
    let told = Told::default();
    let tokens = told.by(builder()).build(endpoint.clone());
    let service = layer(&tokens).layer(echo());
    let start = Instant::now();
    while start.elapsed() < secs(900) {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        assert_eq!(response.body(), "Bearer canary-token-1");
        sleep(secs(1)).await;
    }
    let stale = |event: &Event| {
        matches!(event, Event::Failed { reason, error, .. }
            if *reason == Reason::Schedule && error.is_transient())
    };
    assert_eq!(told.count(stale), endpoint.count() - 1);
    assert!(endpoint.count() > 2);
    endpoint.heal();
    sleep(secs(80)).await;
    assert!(tokens.health().last_error().is_none());
    assert_eq!(told.count(issued), 2);
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_is_told() {
    let endpoint = Endpoint::always(Reply::down());
    let told = Told::default();
    let budget = TokenBudget::per_hour(NonZeroU32::new(4).unwrap());
    let tokens = told.by(builder().budget(budget)).build(endpoint.clone());
    let start = Instant::now();
    while start.elapsed() < secs(1_800) {
        drop(tokens.ready().await);
        sleep(secs(1)).await;
    }
    let spent =
        |event: &Event| matches!(event, Event::Failed { error, .. } if error.is_over_budget());
    assert!(told.count(spent) > 0);
    // What the server saw, and what it did not see, are all the failures there were.
    assert_eq!(told.count(failed), endpoint.count() + told.count(spent));
    assert!(tokens.health().last_error().unwrap().is_over_budget());
}

#[tokio::test(start_paused = true)]
async fn changed_credentials_are_told_once_for_each_change() {
    let secret = Arc::new(Mutex::new("wrong"));
    let vault = {
        let secret = Arc::clone(&secret);
        Provider::from_fn(move || {
            let secret = *secret.lock().unwrap();
            async move { Credentials::new("client", secret) }
        })
    };
    let endpoint = Endpoint::scripted([Reply::refusal(), Reply::refusal()]);
    let told = Told::default();
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    let tokens = told
        .by(TokenSource::builder(uri, vault))
        .build(endpoint.clone());
    let changed = |event: &Event| matches!(event, Event::CredentialsChanged);
    assert!(tokens.ready().await.is_err());
    sleep(secs(30)).await;
    assert_eq!((told.count(changed), endpoint.count()), (0, 1));
    for (turn, new) in ["wrong-2", SECRET].into_iter().enumerate() {
        *secret.lock().unwrap() = new;
        sleep(secs(2)).await;
        assert_eq!(told.count(changed), turn + 1);
        drop(tokens.ready().await);
        assert_eq!(endpoint.count(), turn + 2);
    }
    sleep(secs(30)).await;
    assert_eq!((told.count(changed), told.count(issued)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn calls_with_a_fresh_token_tell_nothing_from_first_to_last() {
    let endpoint = Endpoint::default();
    let told = Told::default();
    let tokens = told.by(builder()).build(endpoint.clone());
    tokens.ready().await.unwrap();
    let before = told.count(|_| true);
    let mut service = layer(&tokens).replay().layer(echo());
    for _ in 0..1_000 {
        let service = ServiceExt::<Request<Body>>::ready(&mut service)
            .await
            .unwrap();
        service.call(get(DATA)).await.unwrap();
    }
    settle().await;
    assert_eq!((told.count(|_| true), before), (2, 2));
}
