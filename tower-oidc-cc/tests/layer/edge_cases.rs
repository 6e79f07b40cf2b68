//! Hostile cases: services that accept and refuse the same token, abandoned callers, and subscribers
//! that call the source.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::{
    convert::Infallible,
    future::Future,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use support::{
    Body, DATA, Endpoint, HOUR, builder, current, dead, endpoint::Reply, get, layer, secs, seen,
    settle, timed,
};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_oidc_cc::{Credentials, Provider, TokenEndpoint, TokenSource};

/// A service that answers a call by its number.
fn numbered<F>(
    answer: impl Fn(usize, &Request<Body>) -> F + Clone + Send + 'static,
) -> impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    F: Future<Output = Response<String>> + Send,
{
    let calls = Arc::new(AtomicUsize::new(0));
    service_fn(move |request: Request<Body>| {
        let answer = answer(calls.fetch_add(1, Ordering::SeqCst), &request);
        async move { Ok(answer.await) }
    })
}

fn said(yes: bool, request: &Request<Body>) -> std::future::Ready<Response<String>> {
    std::future::ready(if yes {
        Response::new(seen(request))
    } else {
        dead()
    })
}

#[tokio::test(start_paused = true)]
async fn refused_call_returns_at_once_beside_an_accepted_call() {
    let endpoint = Endpoint::default();
    let tokens = builder().build(endpoint.clone());
    tokens.ready().await.unwrap();
    let below = numbered(|number, request| said(number > 0, request));
    let service = layer(&tokens).layer(below);
    let start = Instant::now();
    let both = (
        service.clone().oneshot(get(DATA)),
        service.clone().oneshot(get(DATA)),
    );
    let (one, other) = tokio::join!(both.0, both.1);
    assert_eq!(one.unwrap().status(), 401);
    assert_eq!(other.unwrap().status(), 200);
    assert!(start.elapsed() < secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn token_poll_requests_a_token_after_expiry() {
    let endpoint = Endpoint::always(Reply::token(300));
    let tokens = timed().build(endpoint.clone());
    tokens.ready().await.unwrap();
    assert!(current(&tokens).is_some());
    sleep(secs(200)).await;
    endpoint.set(Reply::down());
    sleep(secs(120)).await;
    assert!(current(&tokens).is_none());
    endpoint.set(Reply::token(300));
    sleep(secs(60)).await;
    // A poll that finds no token requests one.
    drop(current(&tokens));
    settle().await;
    assert!(current(&tokens).is_some());
    // The poll also starts the task of a new source.
    let tokens = timed().build(endpoint.clone());
    drop(current(&tokens));
    settle().await;
    assert!(current(&tokens).is_some());
}

#[tokio::test(start_paused = true)]
async fn refused_new_credentials_are_retried_at_most_twice_a_minute() {
    let endpoint = Endpoint::always(Reply::refusal());
    let made = Arc::new(AtomicU64::new(0));
    let provider = Provider::from_fn(move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        async move { Credentials::new("client", format!("secret-{number}")) }
    });
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect").unwrap();
    let tokens = TokenSource::builder(uri, provider).build(endpoint.clone());
    let start = Instant::now();
    while start.elapsed() < secs(HOUR) {
        drop(tokens.ready().await);
        sleep(secs(1)).await;
    }
    // At most two token requests a minute, and two at the start.
    assert!(endpoint.count() <= 122, "{}", endpoint.count());
    assert!(
        tokens
            .health()
            .last_error
            .as_ref()
            .unwrap()
            .oauth_error()
            .is_some()
    );
}

/// Reads the health of the handle at each of its events.
#[derive(Clone, Default)]
struct Asks {
    source: Arc<OnceLock<TokenSource>>,
    heard: Arc<Mutex<Vec<u64>>>,
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Asks {
    fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if let Some(source) = self.source.get() {
            let health = source.health().generation;
            self.heard.lock().unwrap().push(health);
        }
    }
}

#[test]
fn a_subscriber_may_read_the_health_at_each_event() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let asks = Asks::default();
    let heard = Arc::clone(&asks.heard);
    // With a single dispatcher, an event that another thread meets first is never recorded.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let (done, over) = std::sync::mpsc::channel();
    // On a thread of its own, so that the test detects a deadlock.
    std::thread::spawn(move || {
        let source = Arc::clone(&asks.source);
        let subscriber = tracing_subscriber::registry().with(asks);
        tracing::subscriber::with_default(subscriber, || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            let tokens = builder().build(Endpoint::default());
            assert!(source.set(tokens.clone()).is_ok());
            runtime.block_on(tokens.ready()).unwrap();
            done.send(()).unwrap();
        });
    });
    over.recv_timeout(secs(30)).expect("nothing hangs");
    assert_eq!(heard.lock().unwrap()[0], 1);
}

#[tokio::test(start_paused = true)]
async fn invalidating_a_token_of_another_source_has_no_effect() {
    let (prod, endpoint) = {
        let endpoint = Endpoint::default();
        (builder().build(endpoint.clone()), endpoint)
    };
    prod.ready().await.unwrap();
    let reply = r#"{"access_token":"of-staging","token_type":"Bearer"}"#;
    let staging = builder().build(Endpoint::always(Reply::body(200, reply)));
    let token = staging.token().await.unwrap();
    advance(secs(120)).await;
    prod.invalidate(&token);
    sleep(secs(10)).await;
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn call_after_an_old_failure_returns_an_immediately_retryable_error() {
    let endpoint = Endpoint::scripted([Reply::down()]);
    let tokens = builder().build(endpoint);
    let below = service_fn(async |request: Request<Body>| {
        Ok::<_, Infallible>(Response::new(seen(&request)))
    });
    let mut service = layer(&tokens).layer(below);
    service.ready().await.unwrap();
    sleep(secs(HOUR)).await;
    tokens.ready().await.unwrap();
    let error = service.call(get(DATA)).await.unwrap_err();
    let error = support::token_error(error);
    assert!(
        error.is_transient() && !error.to_string().contains("503"),
        "{error}"
    );
    assert_eq!(
        error.retry_after(),
        Some(Duration::ZERO),
        "it can be made now"
    );
}
