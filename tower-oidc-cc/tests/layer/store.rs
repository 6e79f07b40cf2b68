//! One token for several processes, and a store with every fault.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::time::Duration;

use support::{
    DATA, Endpoint, SECRET, builder, dead, echo,
    endpoint::Reply,
    gateway, get, layer, number, secs, settle,
    store::{Fault, Op, Store},
    timed, wall,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, Service, ServiceExt};
use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};

/// One of several processes, which share only the store and the endpoint.
fn process(store: &Store, endpoint: &Endpoint) -> TokenSource {
    timed().store(store.clone()).build(endpoint.clone())
}

/// The key under which a process with the usual settings keeps its token.
async fn usual_key() -> String {
    let store = Store::default();
    process(&store, &Endpoint::default()).ready().await.unwrap();
    settle().await;
    store.keys().pop().expect("it has saved its token")
}

/// Waits for a token, and returns how long that took.
async fn ready(tokens: &TokenSource) -> Duration {
    let start = Instant::now();
    tokens.ready().await.unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn fifty_cold_processes_make_one_request() {
    let store = Store::default();
    let endpoint = Endpoint::always(Reply::token(86_400).after(secs(1)));
    let call = || {
        layer(&process(&store, &endpoint))
            .layer(echo())
            .oneshot(get(DATA))
    };
    let fleet: JoinSet<_> = (0..50).map(|_| call()).collect();
    for response in fleet.join_all().await {
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-1");
    }
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn fleet_of_ten_processes_makes_two_requests_a_day() {
    let (store, endpoint) = (Store::default(), Endpoint::default());
    let fleet: Vec<_> = (0..10).map(|_| process(&store, &endpoint)).collect();
    for tokens in &fleet {
        ready(tokens).await;
    }
    for _ in 0..24 * 60 {
        sleep(secs(60)).await;
        assert!(fleet.iter().all(|tokens| tokens.health().is_ready()));
    }
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_in_its_turn_delays_the_others_by_twelve_seconds_at_most() {
    let key = usual_key().await;
    for (turn, most) in [(5, 6), (86_400, 12)] {
        let (store, endpoint) = (Store::default(), Endpoint::default());
        store.hold(&key, secs(turn));
        let took = ready(&process(&store, &endpoint)).await;
        assert!(took <= secs(most), "{took:?}");
        assert_eq!(endpoint.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn failing_or_hung_store_works_like_no_store() {
    for (op, longest) in [(Op::Load, 12), (Op::Save, 2)] {
        for (fault, most) in [(Fault::Fails, secs(0)), (Fault::Hangs, secs(longest))] {
            let endpoint = Endpoint::always(Reply::token(100));
            let store = Store::default();
            store.set(op, fault);
            let tokens = process(&store, &endpoint);
            let took = ready(&tokens).await;
            assert!(took <= most, "{op:?} {fault:?}: {took:?}");
            assert_eq!(endpoint.count(), 1);
            // The renewal ahead still takes place.
            sleep(secs(95)).await;
            assert_eq!(endpoint.count(), 2, "{op:?} {fault:?}");
            assert!(tokens.health().last_error.is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hung_store_delays_no_call_with_a_valid_token() {
    for op in [Op::Load, Op::Save] {
        let store = Store::default();
        let endpoint = Endpoint::always(Reply::token(100));
        let service = layer(&process(&store, &endpoint)).layer(echo());
        service.clone().oneshot(get(DATA)).await.unwrap();
        store.set(op, Fault::Hangs);
        for _ in 0..3_000 {
            sleep(Duration::from_millis(100)).await;
            let start = Instant::now();
            let response = service.clone().oneshot(get(DATA)).await.unwrap();
            assert_ne!(response.into_body(), "-");
            assert_eq!(start.elapsed(), Duration::ZERO, "{op:?}");
        }
        assert!(endpoint.count() <= 6, "{}", endpoint.count());
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_store_entry_is_ignored() {
    let key = usual_key().await;
    let now = 1_700_000_000_000_u64;
    let entry = |key: &str, token: &str, issued: u64, life: u64| {
        let key = serde_json::to_string(key).unwrap();
        format!(r#"{{"key":{key},"token":"{token}","issued":{issued},"life":{life}}}"#)
    };
    let good = entry(&key, "stored", now, 60_000);
    let bad = [
        String::new(),
        "garbage".to_owned(),
        "[]".to_owned(),
        good[..good.len() - 3].to_owned(),
        entry("somebody else's", "stored", now, 60_000),
        entry(&key, "stored", now - 60_000, 60_000),
        entry(&key, "stored", now, 0),
        entry(&key, "stored", now + 61_000, 59_000),
        entry(&key, "", now, 60_000),
        entry(&key, "line\\r\\nend", now, 60_000),
        entry(&key, "stored", u64::MAX, u64::MAX),
    ];
    for bytes in bad {
        let (store, endpoint) = (Store::default(), Endpoint::default());
        store.put(&key, bytes.clone());
        assert_eq!(ready(&process(&store, &endpoint)).await, Duration::ZERO);
        assert_eq!(endpoint.count(), 1, "{bytes}");
    }
    let (store, endpoint) = (Store::default(), Endpoint::default());
    // By a clock that is ahead.
    store.put(&key, entry(&key, "stored", now + 59_000, 60_000));
    let service = layer(&process(&store, &endpoint)).layer(echo());
    let response = service.oneshot(get(DATA)).await.unwrap();
    assert_eq!(response.into_body(), "Bearer stored");
    assert_eq!(endpoint.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_endpoint_client_and_parameter_has_its_own_token() {
    let (store, endpoint) = (Store::default(), Endpoint::default());
    let realm = |realm| TokenEndpoint::keycloak("https://sso.example.com", realm).unwrap();
    let key = |id, secret| Credentials::new(id, secret).unwrap();
    let fleet = [
        (realm("one"), key("client", SECRET), None),
        (realm("two"), key("client", SECRET), None),
        (realm("one"), key("other", SECRET), None),
        (realm("one"), key("client", SECRET), Some(("scope", "a b"))),
        (realm("one"), key("client", SECRET), Some(("scope", "a"))),
        (realm("one"), key("client", SECRET), Some(("audience", "a"))),
        (realm("one"), key("client", SECRET), Some(("x", "a"))),
    ];
    let kinds = fleet.len();
    for (uri, credentials, parameter) in fleet {
        let mut builder = TokenSource::builder(uri, credentials);
        if let Some((name, value)) = parameter {
            builder = builder.field(name, value);
        }
        ready(&builder.store(store.clone()).build(endpoint.clone())).await;
        settle().await;
    }
    assert_eq!(endpoint.count(), kinds);
    assert_eq!(store.keys().len(), kinds);
    // A secret that was rotated leads to the same token.
    let rotated = TokenSource::builder(realm("one"), key("client", "rotated"));
    ready(&rotated.store(store.clone()).build(endpoint.clone())).await;
    assert_eq!(endpoint.count(), kinds);
    assert!(store.keys().iter().all(|key| !key.contains(SECRET)));
}

#[tokio::test(start_paused = true)]
async fn stored_token_keeps_its_original_expiry() {
    let store = Store::default();
    let endpoint = Endpoint::scripted([Reply::token(100)]);
    endpoint.set(Reply::hang());
    ready(&process(&store, &endpoint)).await;
    settle().await;
    sleep(secs(60)).await;
    let second = process(&store, &endpoint);
    ready(&second).await;
    assert_eq!(second.health().life_left, Some(secs(40)));
    sleep(secs(39)).await;
    assert!(second.health().is_ready());
    sleep(secs(1)).await;
    assert!(!second.health().is_ready());
}

#[tokio::test(start_paused = true)]
async fn store_never_restores_a_refused_token() {
    let (store, endpoint) = (Store::default(), Endpoint::default());
    let refusing = || gateway(|token, _| (number(token) == 1).then(dead));
    let mut fleet: Vec<_> = (0..3)
        .map(|_| layer(&process(&store, &endpoint)).layer(refusing()))
        .collect();
    for service in &mut fleet {
        assert!(service.ready().await.is_ok());
        settle().await;
    }
    assert_eq!(endpoint.count(), 1);
    let stale = store.tokens();
    for service in &mut fleet {
        let refused = service.ready().await.unwrap().call(get(DATA)).await;
        assert_eq!(refused.unwrap().status(), 401);
        // A slow process saves the refused token again.
        for (key, token) in &stale {
            if endpoint.count() == 1 {
                store.put(key, token.as_bytes());
            }
        }
        let response = service.ready().await.unwrap().call(get(DATA)).await;
        assert_eq!(response.unwrap().into_body(), "Bearer canary-token-2");
        settle().await;
    }
    assert_eq!(
        endpoint.count(),
        2,
        "the others take the first one's new token"
    );
}

/// Twenty programs that start by cron, in a minute.
#[tokio::test(start_paused = true)]
async fn a_wait_that_the_endpoint_asked_for_is_kept_by_all_programs_of_a_store() {
    for (wait, kept) in [(60, 60), (7, 7), (86_400, 300)] {
        let busy = Reply::body(
            429,
            r#"{"error":"slow_down","error_description":"too many"}"#,
        );
        let busy = busy.header("retry-after", wait.to_string());
        let (store, endpoint) = (Store::default(), Endpoint::always(busy));
        let (start, program) = (Instant::now(), || process(&store, &endpoint));
        let mut programs = JoinSet::new();
        for _ in 0..20 {
            let program = program();
            programs.spawn(async move { program.ready().await.unwrap_err() });
        }
        for error in programs.join_all().await {
            assert!(error.is_transient(), "{error}");
        }
        assert_eq!(endpoint.count(), 1);
        assert!(start.elapsed() < secs(1), "at once");
        while start.elapsed() < secs(kept) {
            let error = program().ready().await.unwrap_err();
            let left = secs(kept) - start.elapsed();
            assert!(error.retry_after().unwrap() >= left, "{error}");
            for part in ["429", "too many", "https://sso"] {
                assert!(error.to_string().contains(part), "{error}");
            }
            sleep(secs(1)).await;
        }
        assert_eq!(endpoint.count(), 1);
        endpoint.heal();
        program().ready().await.unwrap();
        assert_eq!(endpoint.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_secret_is_sent_once_a_minute_by_all_programs_and_a_corrected_one_at_once() {
    let refusal = r#"{"error":"unauthorized_client","error_description":"Invalid client"}"#;
    let store = Store::default();
    let endpoint = Endpoint::always(Reply::body(401, refusal));
    let program = |secret: &str| {
        let uri = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
        let builder = TokenSource::builder(uri, Credentials::new("client", secret).unwrap());
        let builder = builder.wall_clock(wall(0)).store(store.clone());
        builder.build(endpoint.clone())
    };
    for _ in 0..20 {
        let error = program("wrong").ready().await.unwrap_err();
        assert_eq!(error.oauth_error(), Some("unauthorized_client"));
        assert!(!error.is_transient());
        assert!(error.to_string().contains("Invalid client"), "{error}");
        sleep(secs(2)).await;
    }
    assert_eq!(endpoint.count(), 1);
    drop(program("corrected").ready().await);
    assert_eq!(endpoint.count(), 2);
    endpoint.heal();
    sleep(secs(61)).await;
    program("corrected").ready().await.unwrap();
    // A valid token wins over a stored failure.
    endpoint.set(Reply::body(401, refusal));
    assert_eq!(ready(&program("wrong")).await, secs(0));
    assert_eq!(endpoint.count(), 3);
    assert!(store.tokens().into_values().all(|it| {
        let bytes = String::from_utf8(it.as_bytes().to_vec()).unwrap();
        !bytes.contains("wrong") && !bytes.contains("corrected")
    }));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_does_not_extend_a_shared_wait() {
    for step in [-86_400_i64, -60, 60, 86_400] {
        let busy = Reply::down().header("retry-after", "50");
        let (store, endpoint) = (Store::default(), Endpoint::always(busy));
        let program = |step| {
            let builder = builder().wall_clock(wall(step)).store(store.clone());
            builder.build(endpoint.clone())
        };
        drop(program(0).ready().await);
        endpoint.heal();
        program(step).ready().await.unwrap();
        assert_eq!(endpoint.count(), 2, "{step}");
    }
}
