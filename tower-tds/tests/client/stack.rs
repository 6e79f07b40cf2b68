//! The whole stack against the simulated service on sockets. The tests check the service's ledger.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use tds_sim::{Config, Server};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_tds::{
    Client, Credentials, Error, Kind, Limits, Proof, Provider, Quota, RequestBody, SharedLimits,
    layers::token::RefreshPolicy,
};

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

/// A client of the simulated service, with limits too wide to wait for.
fn hasty(server: &Server) -> Client {
    client(server, Limits::new(Quota::per_second(count(1_000_000))))
}

fn credentials(server: &Server) -> Credentials {
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    credentials.expect("the simulator's are usable")
}

fn client(server: &Server, limits: impl Into<SharedLimits>) -> Client {
    Client::builder(server.auth_url(), server.base_url(), credentials(server))
        .loopback_http()
        .limits(limits)
        .build()
        .expect("loopback is let through")
}

/// A service that accepts far more than these tests send.
fn wide() -> Config {
    let mut config = Config::default();
    config.rate = 1_000_000;
    config
}

async fn start(config: Config) -> Server {
    Server::start(config)
        .await
        .expect("loopback has free ports")
}

async fn get(client: Client, url: String) -> Result<Bytes, Error> {
    let request = Request::get(url).body(RequestBody::default());
    let response = client.oneshot(request.expect("a request")).await?;
    let body = response.into_body().collect().await;
    Ok(body.expect("a whole body").to_bytes())
}

async fn get_many(client: &Client, urls: impl IntoIterator<Item = String>) -> Vec<Error> {
    let mut calls = JoinSet::new();
    for url in urls {
        calls.spawn(get(client.clone(), url));
    }
    let outcomes = calls.join_all().await;
    outcomes.into_iter().filter_map(Result::err).collect()
}

fn bus(server: &Server) -> String {
    format!("{}/v1/live/bus", server.base_url())
}

#[tokio::test]
async fn call_returns_data_with_one_token_request() {
    let server = start(Config::default()).await;
    let client = client(&server, Limits::default());
    let body = get(client, bus(&server)).await.expect("data");
    assert!(body.starts_with(b"{\"name\":\"bus\""));
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.token_posts), (1, 1));
}

#[tokio::test]
async fn token_uses_the_callers_provider_and_settings() {
    let server = start(Config::default()).await;
    let (id, secret) = (
        server.client_id().to_owned(),
        server.client_secret().to_owned(),
    );
    let provider = Provider::from_fn(move || {
        let credentials = Credentials::new(id.clone(), secret.clone());
        async move { credentials }
    });
    let client = Client::builder(server.auth_url(), server.base_url(), provider)
        .loopback_http()
        .tokens(|tokens| tokens.policy(RefreshPolicy::OnExpiry))
        .build()
        .expect("loopback is let through");
    get(client.clone(), bus(&server)).await.expect("data");
    assert_eq!(server.ledger().summary().token_posts, 1);
    let health = client.tokens().health();
    // This policy renews nothing ahead: the next request is due at the end of this token.
    assert!(health.next_attempt.as_secs() > 86_000, "{health}");
}

#[tokio::test]
async fn a_thousand_cold_calls_share_one_token_post() {
    let server = start(wide()).await;
    let client = hasty(&server);
    let failed = get_many(&client, std::iter::repeat_n(bus(&server), 1_000)).await;
    assert!(failed.is_empty(), "{failed:?}");
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.token_posts), (1_000, 1));
    assert!(seen.peak_sockets <= 60, "{seen:?}");
}

#[tokio::test]
async fn untrusted_token_endpoint_is_not_retried() {
    let mut config = Config::default();
    config.tls = true;
    let server = start(config).await;
    let client = client(&server, Limits::default());
    let error = get(client, bus(&server)).await;
    let error = error.expect_err("its authority is not among the platform's");
    assert_eq!((error.kind(), error.attempts()), (Kind::Tls, 1));
    assert_eq!(server.ledger().summary().token_posts, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_slow_downloads_stay_within_the_limits() {
    let server = start(Config::default()).await;
    let client = client(&server, Limits::default());
    // Bodies of two seconds each, and more of them than sockets.
    let urls = (0..90).map(|n| {
        let size = "bytes=131072&rate=65536&framing=chunked";
        format!("{}/v1/history/day-{n}?{size}", server.base_url())
    });
    let failed = get_many(&client, urls).await;
    assert!(failed.is_empty(), "{failed:?}");
    let seen = server.ledger().summary();
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    assert_eq!(seen.complete, 90);
    assert!(seen.peak_sockets <= 60, "{seen:?}");
    assert!(seen.largest_second <= 50, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_share_their_limits() {
    let server = start(Config::default()).await;
    let limits = SharedLimits::from(Limits::default());
    let [first, second] = [(); 2].map(|()| {
        Client::builder(server.auth_url(), server.base_url(), credentials(&server))
            .loopback_http()
            .limits(&limits)
            .build()
            .expect("loopback is let through")
    });
    let mut calls = JoinSet::new();
    for n in 0..120 {
        let client = if n % 2 == 0 { &first } else { &second };
        let url = format!(
            "{}/v1/history/day-{n}?bytes=30000&rate=60000",
            server.base_url()
        );
        calls.spawn(get(client.clone(), url));
    }
    for outcome in calls.join_all().await {
        outcome.expect("data");
    }
    let seen = server.ledger().summary();
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    assert_eq!(seen.token_posts, 2, "a token for each");
    assert!(seen.largest_second <= 50, "{seen:?}");
    assert!(seen.peak_sockets <= 60, "{seen:?}");
}

#[tokio::test]
async fn token_request_counts_against_the_rate() {
    let server = start(Config::default()).await;
    let one_a_second = Limits::new(Quota::per_second(count(1)));
    let client = client(&server, one_a_second);
    get(client, bus(&server)).await.expect("data");
    // The token came after the start and used the second's only permit.
    let first = &server.ledger().arrivals()[0];
    assert!(first.at >= Duration::from_secs(1), "{first:?}");
}

#[tokio::test]
async fn token_request_precedes_queued_calls() {
    let server = start(Config::default()).await;
    let five_a_second = Quota::new(count(1), Duration::from_millis(200)).expect("an interval");
    let limits = SharedLimits::from(Limits::new(five_a_second));
    let waiting = client(&server, &limits);
    get(waiting.clone(), bus(&server)).await.expect("data");
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        calls.spawn(get(waiting.clone(), bus(&server)));
    }
    tokio::task::yield_now().await;

    let cold = Client::builder(server.auth_url(), server.base_url(), credentials(&server))
        .loopback_http()
        .limits(&limits)
        .build()
        .expect("loopback is let through");
    tokio::spawn(get(cold, bus(&server)));
    while server.ledger().summary().tokens_issued < 2 {
        let call = calls.join_next().await.expect("a call still waits");
        call.expect("no panic").expect("data");
    }
    assert!(calls.len() > 10, "{} still wait", calls.len());
}

#[tokio::test]
async fn one_connection_is_reserved_for_the_token() {
    let server = start(wide()).await;
    let limits = Limits::new(Quota::per_second(count(1_000_000)));
    let client = client(&server, limits.connections(count(5)));
    let url = format!("{}/v1/history/day?bytes=2000&rate=20000", server.base_url());
    let failed = get_many(&client, std::iter::repeat_n(url, 20)).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(server.ledger().summary().peak_sockets, 4);
}

#[tokio::test]
async fn one_connection_serves_token_and_data_calls() {
    let server = start(wide()).await;
    let limits = Limits::new(Quota::per_second(count(1_000_000)));
    let client = client(&server, limits.connections(count(1)));
    let url = format!("{}/v1/history/day?bytes=2000", server.base_url());
    let failed = get_many(&client, std::iter::repeat_n(url, 20)).await;
    assert!(failed.is_empty(), "{failed:?}");
    let summary = server.ledger().summary();
    assert_eq!((summary.peak_sockets, summary.tokens_issued), (1, 1));
}

#[tokio::test]
async fn proof_at_the_end_satisfies_an_in_flight_rule() {
    let mut config = Config::default();
    config.rule = tds_sim::Rule::InFlight;
    let server = start(config).await;
    let client = client(&server, Limits::default().proof(Proof::End));
    let urls = (0..120).map(|n| {
        let size = "bytes=20000&rate=100000&framing=chunked";
        format!("{}/v1/history/day-{n}?{size}", server.base_url())
    });
    let failed = get_many(&client, urls).await;
    assert!(failed.is_empty(), "{failed:?}");
    let seen = server.ledger().summary();
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
}

#[tokio::test]
async fn cancelled_calls_never_exceed_the_socket_limit() {
    let server = start(wide()).await;
    let client = hasty(&server);
    let url = format!(
        "{}/v1/history/day?bytes=400000&rate=2000000",
        server.base_url()
    );
    let mut calls = JoinSet::new();
    for n in 0..300_u32 {
        let call = get(client.clone(), url.clone());
        calls.spawn(async move {
            if n % 2 == 0 {
                return call.await.map(drop);
            }
            // Cancels after some polls, each caller after a different number.
            let mut polls = n % 11;
            let mut call = std::pin::pin!(call);
            std::future::poll_fn(|cx| {
                if polls == 0 {
                    return std::task::Poll::Ready(Ok(()));
                }
                polls -= 1;
                call.as_mut().poll(cx).map(|body| body.map(drop))
            })
            .await
        });
    }
    for call in calls.join_all().await {
        call.expect("whoever stays is answered");
    }
    let seen = server.ledger().summary();
    assert!(seen.peak_sockets <= 60, "{seen:?}");
    assert!(!seen.by_status.contains_key(&416), "{seen:?}");
    assert_eq!(client.limiter().snapshot().in_flight, 0);
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once_and_the_call_succeeds() {
    let server = start(wide()).await;
    let client = hasty(&server);
    get(client.clone(), bus(&server)).await.expect("data");
    server.sim().revoke_all();
    let failed = get_many(&client, std::iter::repeat_n(bus(&server), 50)).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(server.ledger().summary().token_posts, 2);
}

#[tokio::test]
async fn missing_role_is_not_retried() {
    let mut config = wide();
    config.roles = vec![String::from("live")];
    let server = start(config).await;
    let client = hasty(&server);
    let url = format!("{}/v1/history/day", server.base_url());
    let error = get(client, url).await.expect_err("the role is missing");
    assert_eq!(error.kind(), Kind::MissingRole);
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.token_posts), (1, 1));
}

#[tokio::test]
async fn wrong_secret_fails_before_any_data_call() {
    let server = start(wide()).await;
    let credentials = Credentials::new(server.client_id(), "not the secret".replace(' ', "-"));
    let client = Client::builder(
        server.auth_url(),
        server.base_url(),
        credentials.expect("it looks like one"),
    )
    .loopback_http()
    .build()
    .expect("loopback is let through");
    let error = get(client, bus(&server)).await.expect_err("it is wrong");
    assert_eq!(error.kind(), Kind::TokenRefused);
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.token_posts), (0, 1));
}

#[tokio::test]
async fn token_is_never_sent_to_another_origin() {
    let (server, other) = (start(wide()).await, start(wide()).await);
    let client = hasty(&server);
    let error = get(client, bus(&other)).await;
    let error = error.expect_err("the other origin is not listed");
    assert_eq!(error.kind(), Kind::InvalidRequest, "{error}");
    assert!(!error.is_retryable());
    assert_eq!(other.ledger().summary().data_calls, 0);
}

#[tokio::test]
async fn temporary_503_is_retried() {
    // Every second call gets a 503, and the next one succeeds.
    let mut config = wide();
    config
        .faults
        .data
        .push("503@every:2".parse().expect("a fault"));
    let server = start(config).await;
    let client = hasty(&server);
    for _ in 0..4 {
        let body = get(client.clone(), bus(&server)).await;
        body.expect("data in the end");
    }
    let seen = server.ledger().summary();
    assert_eq!(seen.by_status.get(&200), Some(&4));
    assert_eq!(seen.by_status.get(&503), Some(&3));
}

#[tokio::test]
async fn plain_http_is_allowed_only_on_loopback_by_option() {
    let build = |base: &str, loopback: bool| {
        let credentials = Credentials::new("id", "secret").expect("usable");
        let builder = Client::builder("https://auth.example.org", base, credentials);
        let builder = if loopback {
            builder.loopback_http()
        } else {
            builder
        };
        builder.build()
    };
    assert!(build("https://data.example.org", false).is_ok());
    assert!(build("http://127.0.0.1:1", false).is_err());
    assert!(build("http://127.0.0.1:1", true).is_ok());
    let error = build("http://data.example.org", true).expect_err("not this machine");
    let text = error.to_string();
    assert!(text.contains("https"), "{text}");
    // The line contains the cause, and the chain does not repeat it.
    let mut causes =
        std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    assert!(
        causes.all(|cause| !text.contains(&cause.to_string())),
        "{text}"
    );
    let error = build("http://data.example.org", false).expect_err("no plain http");
    assert!(
        error.to_string().contains("Builder::loopback_http"),
        "{error}"
    );
}
