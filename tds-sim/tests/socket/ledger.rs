//! The ledger over HTTP: what it has of a call, which calls are listed, and the wait for them.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use serde_json::Value;
use tds_sim::{Config, Server};

use crate::client::{Client, Got, bearer};

async fn server(record: bool) -> (Server, String) {
    let mut config = Config::default();
    config.record_headers = record;
    let server = Server::start(config).await.unwrap();
    let token = server.sim().token(server.client_id()).unwrap();
    (server, token)
}

async fn ledger(server: &Server, query: &str) -> (u16, Value) {
    let url = format!("{}/ledger{query}", server.admin_url());
    let got = Client::new().get(&url, &[]).await.unwrap();
    (got.status, got.json()["arrivals"].clone())
}

async fn call(client: &Client, server: &Server, path: &str, token: &str) -> Got {
    let url = format!("{}{path}", server.base_url());
    client.get(&url, &[bearer(token)]).await.unwrap()
}

#[tokio::test]
async fn a_call_has_its_method_headers_body_connection_and_times() {
    let (server, token) = server(true).await;
    let client = Client::new();
    for body in ["", "twelve bytes"] {
        let request = Request::put(format!("{}/v1/live/bus", server.base_url()))
            .header("authorization", format!("Bearer {token}"))
            .header("if-none-match", "W/\"128\"")
            .body(Full::from(body))
            .unwrap();
        assert_eq!(client.send(request).await.unwrap().status, 405);
    }
    call(&Client::new(), &server, "/v1/live/bus", &token).await;
    let (_, calls) = ledger(&server, "").await;
    assert!(!calls.to_string().contains(&token));
    let [first, second, other] = &calls.as_array().unwrap()[..] else {
        panic!("{calls}")
    };
    assert_eq!(
        (&first["method"], &first["body_bytes"]),
        (&"PUT".into(), &0.into())
    );
    assert_eq!(second["body_bytes"], 12);
    assert_eq!(first["headers"]["authorization"], "Bearer ***");
    assert_eq!(first["headers"]["if-none-match"], "W/\"128\"");
    let connections = [first, second, other].map(|call| call["connection"].as_u64().unwrap());
    assert_eq!(connections, [1, 1, 2]);
    let times = ["at", "answered", "ended"].map(|time| second[time].as_f64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
}

#[tokio::test]
async fn headers_are_recorded_only_if_they_are_wanted() {
    let (server, token) = server(false).await;
    call(&Client::new(), &server, "/v1/live/bus", &token).await;
    let (_, calls) = ledger(&server, "").await;
    assert_eq!(calls[0]["headers"], serde_json::json!({}));
    assert_eq!(calls[0]["method"], "GET");
}

#[tokio::test]
async fn calls_are_listed_by_path_status_and_time() {
    let (server, token) = server(false).await;
    let client = Client::new();
    for path in [
        "/v1/live/bus?a=1",
        "/v1/live/tram",
        "/v1/history/bus?bytes=9",
        "/nothing",
    ] {
        call(&client, &server, path, &token).await;
    }
    call(&client, &server, "/v1/live/bus", "wrong").await;
    let second = server.ledger().arrivals()[1].at.as_secs_f64();
    for (query, expected) in [
        ("", 5),
        ("?path=/v1/live/bus", 2),
        ("?path=/v1/*/bus", 3),
        ("?path=/v1/live/bus&status=401", 1),
        ("?status=401&status=404", 2),
        ("?status=423", 0),
        (&format!("?to={second}"), 1),
        (&format!("?from={second}"), 4),
    ] {
        let (status, calls) = ledger(&server, query).await;
        assert_eq!(
            (status, calls.as_array().unwrap().len()),
            (200, expected),
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_wait_ends_with_the_calls_or_its_timeout() {
    let (server, token) = server(false).await;
    let url = format!(
        "{}/ledger?status=200&wait=3&timeout=20s",
        server.admin_url()
    );
    let waiting = tokio::spawn(async move { Client::new().get(&url, &[]).await.unwrap() });
    let client = Client::new();
    for token in [&token, "wrong", &token, "wrong"] {
        call(&client, &server, "/v1/live/bus", token).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    call(&client, &server, "/v1/live/bus", &token).await;
    let got = waiting.await.unwrap();
    assert_eq!(
        (got.status, got.json()["arrivals"].as_array().unwrap().len()),
        (200, 3)
    );

    let (status, calls) = ledger(&server, "?wait=9&timeout=50ms").await;
    assert_eq!((status, calls.as_array().unwrap().len()), (504, 5));
    assert_eq!(ledger(&server, "?wait=5").await.0, 200);
}
