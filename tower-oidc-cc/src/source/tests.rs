//! The points at which a driver, a caller or a runtime can end.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinHandle, yield_now},
    time::sleep,
};

use super::shared::Shared;
use crate::{Credentials, TokenEndpoint, TokenError, TokenSource};

impl Shared {
    /// Ends the driver, as the end of its runtime does.
    fn stop_driver(&self) {
        if let Some(driver) = &self.lock().driver {
            driver.abort();
        }
    }

    fn hold_lock(&self) -> impl Drop + '_ {
        self.lock()
    }
}

mod model;

type Body = Full<Bytes>;

/// A source whose endpoint takes a second, and the count of its token requests.
fn source() -> (TokenSource, Arc<AtomicUsize>) {
    source_with(|| sleep(Duration::from_secs(1)))
}

/// A source whose endpoint takes one turn.
fn instant_source() -> (TokenSource, Arc<AtomicUsize>) {
    source_with(yield_now)
}

fn source_with<F>(pause: impl Fn() -> F + Clone + Send + 'static) -> (TokenSource, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let client = tower::service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        let pause = pause();
        async move {
            pause.await;
            let reply = r#"{"access_token":"t","token_type":"Bearer","expires_in":86400}"#;
            Ok::<_, Infallible>(Response::new(Body::from(reply)))
        }
    });
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    let credentials = Credentials::new("client", "secret").unwrap();
    let source = TokenSource::builder(endpoint, credentials).build(client);
    (source, requests)
}

fn waiter(source: &TokenSource) -> JoinHandle<Result<(), TokenError>> {
    let source = source.clone();
    tokio::spawn(async move { source.ready().await })
}

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// Lets the tasks run for `count` turns.
async fn turns(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_driver_leaves_two_waiters_a_token() {
    // Before its first poll, during the request, and after the token has come.
    for turns_before in [0, 1, 5, 20] {
        let (source, requests) = source();
        let waiters = [waiter(&source), waiter(&source)];
        turns(turns_before).await;
        source.shared.stop_driver();
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
        // Another driver starts only one more request.
        assert!(requests.load(Ordering::SeqCst) <= 2, "{turns_before}");
        assert_eq!(source.health().generation, 1, "{turns_before}");
    }
}

#[tokio::test(start_paused = true)]
async fn driver_completes_a_flight_after_its_waiters_are_dropped() {
    for turns_before in [1, 5, 20] {
        let (source, requests) = source();
        let waiters = [waiter(&source), waiter(&source)];
        turns(turns_before).await;
        for waiter in waiters {
            waiter.abort();
        }
        sleep(Duration::from_secs(2)).await;
        assert!(source.health().is_ready(), "{turns_before}");
        assert_eq!(requests.load(Ordering::SeqCst), 1, "{turns_before}");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_waiter_leaves_the_other_waiter_its_token() {
    let (source, requests) = source();
    let (first, second) = (waiter(&source), waiter(&source));
    turns(5).await;
    first.abort();
    second.await.unwrap().unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[test]
fn next_runtime_gets_a_token_after_the_first_ends() {
    let (source, requests) = source();
    let first = paused();
    first.block_on(async {
        drop(waiter(&source));
        turns(5).await;
    });
    drop(first);
    paused().block_on(source.ready()).unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!(source.health().generation, 1);
}

#[tokio::test(start_paused = true)]
async fn second_driver_completes_a_flight_without_waiters() {
    let (source, requests) = source();
    drop(waiter(&source));
    turns(5).await;
    source.shared.stop_driver();
    turns(5).await;
    // One poll of the waiter spawns another driver. Then the waiter is dropped.
    let waiter = waiter(&source);
    turns(5).await;
    waiter.abort();
    sleep(Duration::from_secs(2)).await;
    assert!(source.health().is_ready());
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn waiter_of_an_old_flight_keeps_the_new_flight() {
    let (source, _) = source();
    let enter = || source.shared.enter().unwrap().unwrap().0;
    let old = enter();
    source.shared.abandon(&old.0);
    // The backoff ends within a second.
    sleep(Duration::from_secs(1)).await;
    let mut new = enter();
    source.shared.abandon(&old.0);
    assert!(source.shared.flight().unwrap().0.ptr_eq(&new.0));
    (&mut new.0).await.unwrap();
    assert_eq!(source.health().generation, 1);
}

fn threads() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(3).enable_time().build().unwrap()
}

#[test]
fn dropped_driver_on_threads_leaves_each_waiter_a_token() {
    for spins in 0..200 {
        let (source, requests) = instant_source();
        threads().block_on(async {
            let waiters = [waiter(&source), waiter(&source), waiter(&source)];
            for _ in 0..spins * 10 {
                std::hint::spin_loop();
            }
            source.shared.stop_driver();
            for waiter in waiters {
                waiter.await.unwrap().unwrap();
            }
        });
        // Another driver starts only one more request. Both requests may return a token.
        assert!(requests.load(Ordering::SeqCst) <= 2, "{spins}");
    }
}

#[test]
fn three_waiters_on_threads_share_one_request() {
    for _ in 0..50 {
        let (source, requests) = instant_source();
        threads().block_on(async {
            let waiters = [waiter(&source), waiter(&source), waiter(&source)];
            for waiter in waiters {
                waiter.await.unwrap().unwrap();
            }
        });
        assert_eq!(requests.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_settled_token_takes_no_lock() {
    let (source, _) = source();
    source.ready().await.unwrap();
    let held = source.shared.hold_lock();
    // On a thread of its own, so that the test detects a call that waits for the lock.
    let (done, ended) = std::sync::mpsc::channel();
    let call = Arc::clone(&source.shared);
    let caller = std::thread::spawn(move || {
        let bearer = call.settled().unwrap();
        assert_eq!(bearer.token.header(), "Bearer t");
        call.accept(bearer.generation);
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(30)).unwrap();
    drop(held);
    caller.join().unwrap();
}
