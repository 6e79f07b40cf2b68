//! The limits against every way of counting that the simulated service knows, under paused time:
//! always backlogged, with delays between the send and the count. Nothing may be refused.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tds_sim::{Config, Sim, Summary};
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};
use tower_tds::{
    Limiter, Limits, Proof,
    layers::limits::{RequestLimitLayer, Rules},
};

/// So many calls by a hundred tasks; gives what the service saw.
async fn run(rule: &str, before: &str, work: &str, limits: Limits) -> Summary {
    let mut config = Config::default();
    config.rule = rule.parse().expect("a rule");
    config.seed = 7;
    config.faults.before_counting = before.parse().expect("a delay");
    config.faults.before_head = work.parse().expect("a delay");
    let sim = Sim::new(config);
    let token = format!("Bearer {}", sim.token(sim.client_id()).expect("a token"));
    let service = RequestLimitLayer::new(Limiter::new(limits)).layer(sim.clone());

    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (service, token) = (service.clone(), token.clone());
        tasks.spawn(async move {
            for _ in 0..CALLS_EACH {
                let request = Request::get("http://data.example/v1/live/bus")
                    .header("authorization", &token)
                    .body(Full::<Bytes>::default())
                    .expect("a request");
                let response = service.clone().oneshot(request).await.expect("an answer");
                response.into_body().collect().await.expect("a whole body");
            }
        });
    }
    tasks.join_all().await;
    sim.ledger().summary()
}

const TASKS: u64 = 100;
const CALLS_EACH: u64 = 20;

/// Delays between the send and the count.
const WAYS: [&str; 5] = [
    "none",
    "uniform:0ms:50ms",
    "lognormal:10ms:200ms",
    "stall:5s:300ms",
    "pareto:5ms:1.5",
];

#[tokio::test(start_paused = true)]
async fn the_default_is_refused_by_no_way_of_counting_under_any_delay() {
    for rule in ["fixed", "log", "log-all", "counter", "leaky:49", "leaky:10"] {
        for way in WAYS {
            let seen = run(rule, way, "lognormal:20ms:100ms", Limits::default()).await;
            assert_eq!(
                seen.by_status.get(&200),
                Some(&(TASKS * CALLS_EACH)),
                "{rule} under {way}: {seen:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_safe_where_the_end_is_the_proof() {
    for way in WAYS {
        let limits = Limits::default().proof(Proof::End);
        let seen = run("in-flight", way, "lognormal:20ms:100ms", limits).await;
        assert!(!seen.by_status.contains_key(&423), "{way}: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_window_alone_is_refused_where_it_promises_nothing() {
    // Or the test above could not fail.
    for rule in ["counter", "leaky:10"] {
        let limits = Limits::default().rules(Rules::window());
        let seen = run(rule, "none", "none", limits).await;
        assert!(seen.by_status.contains_key(&423), "{rule}: {seen:?}");
    }
}
