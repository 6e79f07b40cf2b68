//! Expiry on two clocks: the earlier one counts.

use crate::layer::support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use support::{DATA, Endpoint, builder, echo, endpoint::Reply, get, layer, secs, settle, wall};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceExt};
use tower_oidc_cc::TokenSource;

/// A wall clock that moves with the steady clock until it is set.
#[derive(Clone, Default)]
struct Wall(Arc<AtomicI64>);

impl Wall {
    /// Moves only this clock, like a suspension or an administrator.
    fn step(&self, secs: i64) {
        self.0.fetch_add(secs, Ordering::SeqCst);
    }

    fn tokens(&self, endpoint: &Endpoint) -> TokenSource {
        let offset = Arc::clone(&self.0);
        let now = move || wall(offset.load(Ordering::SeqCst))();
        builder().wall_clock(now).build(endpoint.clone())
    }
}

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// A step of the paused clock between two calls.
const STEP: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn call_after_a_suspension_requests_a_new_token_first() {
    let wall = Wall::default();
    let endpoint = Endpoint::always(Reply::token(4 * 3_600));
    let service = layer(&wall.tokens(&endpoint)).layer(echo());
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    wall.step(8 * HOUR);
    advance(STEP).await;
    settle().await;
    let response = service.oneshot(get(DATA)).await.unwrap();
    assert_eq!(response.into_body(), "Bearer canary-token-2");
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn wall_clock_step_of_a_day_costs_at_most_one_request() {
    for step in [DAY, -DAY] {
        let wall = Wall::default();
        let endpoint = Endpoint::always(Reply::token(3_600));
        let service = layer(&wall.tokens(&endpoint)).layer(echo());
        let start = Instant::now();
        drop(service.clone().oneshot(get(DATA)).await.unwrap());
        wall.step(step);
        while start.elapsed() < secs(2_500) {
            sleep(STEP).await;
            drop(service.clone().oneshot(get(DATA)).await.unwrap());
        }
        let extra = usize::from(step > 0);
        assert_eq!(endpoint.count(), 1 + extra, "{step}");
        // Each token is followed by another before it ends on the steady clock.
        sleep(secs(10_000)).await;
        for pair in endpoint.posts().windows(2) {
            assert!(pair[1].at - pair[0].at < secs(3_600));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn token_expires_by_steady_clock_when_wall_clock_lags() {
    let wall = Wall::default();
    let endpoint = Endpoint::scripted([Reply::token(100)]);
    endpoint.set(Reply::hang());
    let service = layer(&wall.tokens(&endpoint)).layer(echo());
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    wall.step(-DAY);
    sleep(secs(101)).await;
    assert!(service.oneshot(get(DATA)).await.is_err());
}
