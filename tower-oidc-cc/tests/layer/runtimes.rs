//! One source in several runtimes, which end at any moment.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::{
    pin::pin,
    sync::{Arc, Barrier},
    thread,
};

use support::{DATA, Endpoint, echo, endpoint::Reply, get, layer, poll_once, secs, tokens};
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinSet, yield_now},
};
use tower::{Layer, ServiceExt};

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

fn threads(count: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(count).enable_time().build().unwrap()
}

async fn turns(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

#[test]
fn a_runtime_that_ends_at_any_step_leaves_the_waiters_of_another_a_token() {
    for before in [0, 1, 2, 5, 20] {
        let endpoint = Endpoint::always(Reply::token(86_400).after(secs(1)));
        let tokens = tokens(&endpoint);
        let (first, second) = (paused(), paused());
        first.block_on(async {
            assert!(poll_once(pin!(tokens.ready())).is_none());
            turns(before).await;
        });
        let mut waiters = JoinSet::new();
        second.block_on(async {
            for _ in 0..3 {
                let tokens = tokens.clone();
                waiters.spawn(async move { tokens.ready().await });
            }
            turns(5).await;
        });
        drop(first);
        second.block_on(async {
            while let Some(waited) = waiters.join_next().await {
                waited.unwrap().unwrap();
            }
            let alive = tokio::runtime::Handle::current().metrics();
            assert_eq!(alive.num_alive_tasks(), 1, "three waiters start one task");
        });
        assert!(endpoint.count() <= 2, "{before}: {}", endpoint.count());
        assert_eq!(tokens.health().generation, 1, "{before}");
    }
}

/// Each test has its own runtime, and the client is a `static`, as in some test suites.
#[test]
fn a_hundred_and_twenty_runtimes_use_one_source() {
    let endpoint = Endpoint::default();
    let tokens = tokens(&endpoint);
    let service = layer(&tokens).layer(echo());
    let together = Arc::new(Barrier::new(8));
    let suites = (0..8).map(|_| {
        let (service, together) = (service.clone(), Arc::clone(&together));
        thread::spawn(move || {
            together.wait();
            for _ in 0..15 {
                let call = service.clone().oneshot(get(DATA));
                let response = threads(1).block_on(call).unwrap();
                assert!(response.into_body().starts_with("Bearer canary-token-"));
            }
        })
    });
    for suite in suites.collect::<Vec<_>>() {
        suite.join().unwrap();
    }
    // Only runtimes that end during the first token request cause another one.
    assert!(endpoint.count() <= 8, "{}", endpoint.count());
}
