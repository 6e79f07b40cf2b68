//! The whole stack against the simulated service on sockets. The tests check the service's ledger.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use tds_sim::{Config, Server};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_tds::{
    Client, Credentials, CredentialsProvider, Error, Kind, Limits, Quota, RequestBody, SharedLimits,
};

use crate::client::sim::{self, start};

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

/// A client of the simulated service, with limits too wide to wait for.
fn hasty(server: &Server) -> Client {
    client(server, Limits::new(Quota::per_second(count(1_000_000))))
}

fn client(server: &Server, limits: impl Into<SharedLimits>) -> Client {
    let built = sim::builder(server).limits(limits).build();
    built.expect("loopback is let through")
}

/// A service that accepts far more than these tests send.
fn wide() -> Config {
    let mut config = Config::default();
    config.rate = 1_000_000;
    config
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
async fn token_uses_the_callers_provider_and_settings() {
    let server = start(Config::default()).await;
    let (id, secret) = (
        server.client_id().to_owned(),
        server.client_secret().to_owned(),
    );
    let provider = CredentialsProvider::from_fn(move || {
        let credentials = Credentials::new(id.clone(), secret.clone());
        async move { credentials }
    });
    let client = Client::builder(server.auth_url(), server.base_url(), provider)
        .loopback_http()
        .tokens(|tokens| tokens.refresh_before(Duration::ZERO))
        .build()
        .expect("loopback is let through");
    get(client.clone(), bus(&server)).await.expect("data");
    assert_eq!(server.ledger().summary().token_posts, 1);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_share_their_limits() {
    let server = start(Config::default()).await;
    let limits = SharedLimits::from(Limits::default());
    let [first, second] = [(); 2].map(|()| client(&server, &limits));
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

    let cold = client(&server, &limits);
    tokio::spawn(get(cold, bus(&server)));
    while server.ledger().summary().tokens_issued < 2 {
        let call = calls.join_next().await.expect("a call still waits");
        call.expect("no panic").expect("data");
    }
    assert!(calls.len() > 10, "{} still wait", calls.len());
}

#[tokio::test]
async fn wrong_secret_fails_before_any_data_call() {
    let server = start(wide()).await;
    let credentials = Credentials::new(server.client_id(), "not-the-secret");
    let credentials = credentials.expect("it looks like one");
    let client = Client::builder(server.auth_url(), server.base_url(), credentials);
    let client = client.loopback_http().build();
    let client = client.expect("loopback is let through");
    let error = get(client, bus(&server)).await.expect_err("it is wrong");
    assert_eq!(error.kind(), Kind::TokenRefused);
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.token_posts), (0, 1));
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
