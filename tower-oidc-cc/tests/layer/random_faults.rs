//! A day of random faults: no call fails while there is a valid token.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::StatusCode;
use proptest::prelude::*;
use support::{DATA, Endpoint, HOUR, builder, dead, endpoint::Reply, gateway, get, layer, secs};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        6 => (60u64..20_000).prop_map(Reply::token),
        1 => (1u64..30).prop_map(Reply::token),
        1 => (60u64..9_000, 0u64..15).prop_map(|(life, late)| {
            Reply::token(life).after(secs(late))
        }),
        1 => Just(Reply::token(0)),
        2 => Just(Reply::down()),
        1 => (0u64..1_000).prop_map(|secs| Reply::down().header("retry-after", secs.to_string())),
        1 => Just(Reply::refusal()),
        1 => Just(Reply::broken()),
        1 => Just(Reply::hang()),
        1 => Just(Reply::panic()),
        1 => Just(Reply::body(200, "<html>")),
        1 => Just(Reply::body(429, "")),
    ]
}

fn before() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), Just(Some(0)), (60..6 * HOUR).prop_map(Some)]
}

/// A call each 20 seconds for a day, under `script`, and what has to hold.
fn day(script: Vec<Reply>, before: Option<u64>, dead_every: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::scripted(script);
        let builder = match before {
            Some(before) => builder().refresh_before(secs(before)),
            None => builder(),
        };
        let tokens = builder.build(endpoint.clone());
        let (calls, issued) = (Arc::new(AtomicUsize::new(1)), endpoint.clone());
        let service = layer(&tokens).layer(gateway(move |token, _| {
            // Compared with the expiry at the endpoint. The contract: "when the time since issue
            // exceeds expires_in, the token is no longer valid".
            let expires_at = issued.expiry(token.trim_start_matches("Bearer "));
            let late = Instant::now().saturating_duration_since(expires_at);
            assert!(late.is_zero(), "{token} has expired by {late:?}");
            let call = calls.fetch_add(1, Ordering::SeqCst);
            call.is_multiple_of(dead_every).then(dead)
        }));
        let start = Instant::now();
        while start.elapsed() < secs(24 * HOUR) {
            // A token in its last second may expire between readiness and call.
            let valid = tokens.health().life_left.is_some_and(|left| left > secs(1));
            let asked = Instant::now();
            // A refused call is held for ten seconds at most, and delays no other by more than one.
            let mut most = secs(1);
            match service.clone().oneshot(get(DATA)).await {
                Ok(response) if response.status() == StatusCode::OK => {
                    assert!(response.body().starts_with("Bearer canary-token-"));
                }
                Ok(_) => most = secs(11),
                Err(error) => {
                    assert!(!valid, "a call fails while there is a token: {error}");
                    assert!(support::token_error(error).retry_after().is_some());
                }
            }
            assert!(!valid || asked.elapsed() <= most, "a call waits");
            sleep(secs(20)).await;
        }
        // No state is terminal: a healthy endpoint returns a token within one backoff.
        endpoint.heal();
        sleep(secs(300)).await;
        tokens.ready().await.unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_faults_fail_no_call_with_a_valid_token(
        script in prop::collection::vec(reply(), 0..120),
        before in before(),
        dead_every in prop_oneof![Just(usize::MAX), 2usize..400],
    ) {
        day(script, before, dead_every);
    }
}
