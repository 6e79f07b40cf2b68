//! Tokens that die before their time, services that refuse whatever comes, and what that costs.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::support;

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use http::{Request, Response, StatusCode, Uri};
use support::{
    Again, Body, DATA, DAY, Endpoint, HOUR, builder, dead, empty, endpoint::Reply, get, layer,
    secs, seen, settle,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_oidc_cc::{BearerAuthLayer, Origin, RefreshPolicy};

/// A service whose tokens die at this age, whatever the endpoint claims.
fn lasting(
    endpoint: &Endpoint,
    life: Duration,
) -> impl Service<Request<Body>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let endpoint = endpoint.clone();
    service_fn(move |request: Request<Body>| {
        let token = seen(&request);
        let refused = endpoint.age(&token) >= life;
        async move {
            Ok(if refused {
                dead()
            } else {
                Response::new(token)
            })
        }
    })
}

/// Calls at this pace for so long; gives how many were refused.
async fn refused(
    service: &(impl Service<Request<Body>, Response = Response<String>, Error: std::fmt::Debug> + Clone),
    pace: Duration,
    time: Duration,
) -> usize {
    let (mut refused, start) = (0, Instant::now());
    while start.elapsed() < time {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        refused += usize::from(response.status() != StatusCode::OK);
        sleep(pace).await;
    }
    refused
}

#[tokio::test(start_paused = true)]
async fn a_token_that_dies_early_costs_no_call_that_is_made_again() {
    for (life, most) in [(5 * 60, 430), (20 * 60, 110), (45 * 60, 50)] {
        let endpoint = Endpoint::default();
        let tokens = builder().build(endpoint.clone());
        let service = Again(layer(&tokens).layer(lasting(&endpoint, secs(life))));
        let failed = refused(&service, secs(1), secs(DAY)).await;
        assert_eq!(failed, 0, "a real life of {life} s");
        assert!(endpoint.count() <= most, "{life}: {}", endpoint.count());
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_dies_early_costs_one_call_that_is_not_made_again() {
    for life in [5 * 60, 20 * 60, 45 * 60] {
        let endpoint = Endpoint::default();
        let tokens = builder().build(endpoint.clone());
        let service = layer(&tokens).layer(lasting(&endpoint, secs(life)));
        let failed = refused(&service, secs(1), secs(DAY)).await;
        assert!(failed <= endpoint.count(), "{life}: {failed} failed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_whose_clock_is_ahead_costs_no_call_that_is_made_again() {
    for ahead in [30, 90] {
        for policy in [RefreshPolicy::Ahead, RefreshPolicy::OnExpiry] {
            let endpoint = Endpoint::always(Reply::token(300));
            let tokens = builder().policy(policy).build(endpoint.clone());
            let below = lasting(&endpoint, secs(300 - ahead));
            let service = Again(layer(&tokens).layer(below));
            let failed = refused(&service, secs(1), secs(6 * HOUR)).await;
            assert_eq!(failed, 0, "{ahead} s ahead, {policy:?}");
        }
    }
}

/// When the endpoint was asked, in minutes from the first time.
fn minutes(endpoint: &Endpoint) -> Vec<u64> {
    let posts = endpoint.posts();
    let from = posts[0].at;
    // The wall clock is the machine's here, and goes on by a little.
    let minute = |at: Instant| ((at - from).as_secs() + 30) / 60;
    posts.iter().map(|post| minute(post.at)).collect()
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_constant_refusal_costs_sixteen_requests_evenly_spread() {
    for again in [false, true] {
        let endpoint = Endpoint::default();
        let tokens = builder().build(endpoint.clone());
        let below = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(dead()));
        let mut calls = JoinSet::new();
        for number in 0..20 {
            let tokens = tokens.clone();
            calls.spawn(async move {
                let start = Instant::now();
                let uri = format!("{DATA}/{number}");
                while start.elapsed() < secs(HOUR - 1) {
                    let response = if again {
                        Again(layer(&tokens).layer(below)).oneshot(get(&uri)).await
                    } else {
                        layer(&tokens).layer(below).oneshot(get(&uri)).await
                    };
                    assert_eq!(response.unwrap().status(), StatusCode::UNAUTHORIZED);
                    sleep(secs(1)).await;
                }
            });
        }
        calls.join_all().await;
        let minutes = minutes(&endpoint);
        assert!(minutes.len() <= 16, "{minutes:?}");
        assert_eq!(minutes[..7], [0, 0, 1, 3, 7, 12, 17], "{minutes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_tokens_that_were_refused_turn_good_the_next_call_succeeds() {
    let endpoint = Endpoint::default();
    let well = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&well);
    let below = service_fn(move |request: Request<Body>| {
        let well = says.load(Ordering::SeqCst);
        async move {
            Ok::<_, Infallible>(if well {
                Response::new(seen(&request))
            } else {
                dead()
            })
        }
    });
    let service = layer(&builder().build(endpoint.clone())).layer(below);
    for minutes in [1, 2, 10, 30] {
        well.store(false, Ordering::SeqCst);
        refused(&service, secs(1), secs(60 * minutes)).await;
        well.store(true, Ordering::SeqCst);
        let before = endpoint.count();
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(endpoint.count(), before, "the one that is there is sent");
        sleep(secs(2 * HOUR)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_only_newer_tokens_are_good_calls_succeed_within_five_minutes() {
    for incident in [60, 120, 700, 2_000] {
        let endpoint = Endpoint::default();
        let from = Arc::new(Mutex::new(None::<Instant>));
        let (issued, good_from) = (endpoint.clone(), Arc::clone(&from));
        let below = service_fn(move |request: Request<Body>| {
            let token = seen(&request);
            let from = *good_from.lock().unwrap();
            let good = from.is_some_and(|from| issued.age(&token) < from.elapsed());
            async move { Ok::<_, Infallible>(if good { Response::new(token) } else { dead() }) }
        });
        let service = layer(&builder().build(endpoint.clone())).layer(below);
        refused(&service, secs(1), secs(incident)).await;
        *from.lock().unwrap() = Some(Instant::now());
        let failed = refused(&service, secs(1), secs(HOUR)).await;
        assert!(failed <= 301, "after {incident} s: {failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_401_without_a_reason_fails_nobody_while_the_endpoint_is_down() {
    for answer in [empty, dead] {
        let endpoint = Endpoint::scripted([Reply::default()]);
        endpoint.set(Reply::down());
        let refuse = Arc::new(AtomicBool::new(true));
        let below = service_fn(move |request: Request<Body>| {
            let refuse = refuse.swap(false, Ordering::SeqCst);
            async move {
                Ok::<_, Infallible>(if refuse {
                    answer()
                } else {
                    Response::new(seen(&request))
                })
            }
        });
        let service = layer(&builder().build(endpoint.clone())).layer(below);
        assert_eq!(refused(&service, secs(1), secs(HOUR)).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_401_without_a_reason_asks_for_one_token_an_hour() {
    let endpoint = Endpoint::default();
    let service =
        layer(&builder().build(endpoint.clone())).layer(service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(empty())
        }));
    refused(&service, secs(1), secs(3 * HOUR - 5)).await;
    assert_eq!(endpoint.count(), 4, "the first, and one an hour");
}

#[tokio::test(start_paused = true)]
async fn one_route_that_refuses_all_tokens_costs_sixteen_requests_an_hour_and_no_other_call() {
    for again in [false, true] {
        let endpoint = Endpoint::default();
        let tokens = builder().build(endpoint.clone());
        let below = service_fn(async |request: Request<Body>| {
            let bad = request.uri().path().ends_with("/3");
            Ok::<_, Infallible>(if bad {
                dead()
            } else {
                Response::new(seen(&request))
            })
        });
        for call in 0..20 * HOUR {
            let request = get(&format!("{DATA}/{}?call={call}", call % 10));
            let response = if again {
                let service = Again(layer(&tokens).layer(below));
                service.oneshot(request).await.unwrap()
            } else {
                layer(&tokens).layer(below).oneshot(request).await.unwrap()
            };
            assert_eq!(response.status() == StatusCode::OK, call % 10 != 3);
            sleep(Duration::from_millis(50)).await;
        }
        assert!(endpoint.count() <= 16, "{}", endpoint.count());
    }
}

#[tokio::test(start_paused = true)]
async fn a_death_beside_a_route_that_refuses_all_is_mended_at_once() {
    let endpoint = Endpoint::default();
    let tokens = builder().build(endpoint.clone());
    let issued = endpoint.clone();
    let below = service_fn(move |request: Request<Body>| {
        let token = seen(&request);
        let bad = request.uri().path().ends_with("/3") || issued.age(&token) >= secs(1_200);
        async move { Ok::<_, Infallible>(if bad { dead() } else { Response::new(token) }) }
    });
    let service = Again(layer(&tokens).layer(below));
    for call in 0..6 * HOUR {
        let request = get(&format!("{DATA}/{}", call % 10));
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status() == StatusCode::OK, call % 10 != 3);
        sleep(secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_401_of_one_origin_takes_the_token_from_no_other() {
    let endpoint = Endpoint::scripted([Reply::default()]);
    endpoint.set(Reply::down());
    let tokens = builder().build(endpoint.clone());
    let origins = ["https://one.example.com", "https://two.example.com"];
    let origins = origins.map(|uri| Origin::from_uri(&Uri::from_static(uri)).unwrap());
    let below = service_fn(async |request: Request<Body>| {
        let refused = request.uri().host() == Some("one.example.com");
        Ok::<_, Infallible>(if refused {
            dead()
        } else {
            Response::new(seen(&request))
        })
    });
    let service = BearerAuthLayer::new(tokens, origins).layer(below);
    for _ in 0..HOUR {
        for (uri, status) in [
            ("https://one.example.com/", 401),
            ("https://two.example.com/", 200),
        ] {
            let response = service.clone().oneshot(get(uri)).await.unwrap();
            assert_eq!(response.status(), status);
        }
        sleep(secs(1)).await;
    }
}

#[test]
fn a_token_that_expired_while_nobody_drove_the_runtime_is_not_sent() {
    let endpoint = Endpoint::always(Reply::token(60));
    let wall = Arc::new(Mutex::new(SystemTime::UNIX_EPOCH + secs(1_700_000_000)));
    let clock = Arc::clone(&wall);
    let tokens = builder()
        .wall_clock(move || *clock.lock().unwrap())
        .build(endpoint.clone());
    let below = service_fn(async |request: Request<Body>| Ok::<_, Infallible>(seen(&request)));
    let below = below.map_response(Response::new);
    let mut service = layer(&tokens).layer(below);
    let paused = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let runtime = paused();
    let mut call = || {
        let call = async { service.ready().await.unwrap().call(get(DATA)).await };
        runtime.block_on(call).unwrap().into_body()
    };
    assert_eq!(call(), "Bearer canary-token-1");
    // A program that does other things between two calls, or a laptop that sleeps.
    *wall.lock().unwrap() += secs(61);
    assert_eq!(call(), "Bearer canary-token-2");
    *wall.lock().unwrap() += secs(61);
    assert_eq!(call(), "Bearer canary-token-3");
}

#[tokio::test(start_paused = true)]
async fn a_401_while_the_endpoint_hangs_delays_no_other_call() {
    let endpoint = Endpoint::scripted([Reply::default()]);
    endpoint.set(Reply::hang());
    let below = service_fn(async |request: Request<Body>| {
        Ok::<_, Infallible>(if request.uri().path().ends_with("bad") {
            dead()
        } else {
            Response::new(seen(&request))
        })
    });
    let service = layer(&builder().build(endpoint.clone())).layer(below);
    drop(service.clone().oneshot(get(DATA)).await.unwrap());
    let refused = tokio::spawn(service.clone().oneshot(get(&format!("{DATA}/bad"))));
    settle().await;
    let start = Instant::now();
    for _ in 0..100 {
        let response = service.clone().oneshot(get(DATA)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(start.elapsed(), secs(0));
    assert_eq!(refused.await.unwrap().unwrap().status(), 401);
}
