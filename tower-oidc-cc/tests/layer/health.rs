//! The health of a token.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::sync::{Arc, Mutex, OnceLock};

use support::{Endpoint, builder, endpoint::Reply, secs};
use tokio::time::{advance, sleep};
use tower_oidc_cc::TokenSource;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

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

/// Reads the health of the handle at each of its events.
#[derive(Clone, Default)]
struct Asks(Arc<OnceLock<TokenSource>>, Arc<Mutex<Vec<u64>>>);

impl<S: tracing::Subscriber> Layer<S> for Asks {
    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        if let Some(source) = self.0.get() {
            let generation = source.health().generation;
            self.1.lock().unwrap().push(generation);
        }
    }
}

#[test]
fn a_subscriber_may_read_the_health_at_each_event() {
    let asks = Asks::default();
    let heard = Arc::clone(&asks.1);
    // With a single dispatcher, an event that another thread meets first is never recorded.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let (done, over) = std::sync::mpsc::channel();
    // On a thread of its own, so that the test detects a deadlock.
    std::thread::spawn(move || {
        let source = Arc::clone(&asks.0);
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
