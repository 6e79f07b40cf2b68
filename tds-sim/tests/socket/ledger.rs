//! The ledger over HTTP: what it has of a call, which calls are listed, and the wait for them.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use serde_json::Value;

use crate::client::{Client, World};

impl World {
    /// The arrivals that `/ledger` lists.
    async fn listed(&self, query: &str) -> (u16, Vec<Value>) {
        let url = format!("{}/ledger{query}", self.server.admin_url());
        let got = Client::new().get(&url, &[]).await.unwrap();
        assert_eq!(got.header("content-type"), "application/json");
        (
            got.status,
            got.json()["arrivals"].as_array().unwrap().clone(),
        )
    }
}

#[tokio::test]
async fn a_call_has_its_method_headers_body_connection_and_times() {
    let world = World::with(|config| config.record_headers = true).await;
    let client = Client::new();
    for body in ["", "twelve bytes"] {
        let request = Request::put(world.url("/v1/live/bus"))
            .header("authorization", format!("Bearer {}", world.token))
            .header("if-none-match", "W/\"128\"")
            .body(Full::from(body))
            .unwrap();
        assert_eq!(client.send(request).await.unwrap().status, 405);
    }
    world.status("/v1/live/bus").await;
    let (_, calls) = world.listed("").await;
    assert!(!format!("{calls:?}").contains(&world.token));
    let [first, second, other] = &calls[..] else {
        panic!("{calls:?}")
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
async fn headers_are_recorded_only_if_they_are_wanted_and_the_totals_can_be_read() {
    let world = World::new().await;
    Client::new().token(&world.server).await;
    world.status("/v1/live/bus").await;
    let (_, calls) = world.listed("").await;
    assert_eq!(calls[0]["headers"], serde_json::json!({}));
    assert_eq!(
        (&calls[0]["method"], &calls[0]["outcome"]),
        (&"GET".into(), &"complete".into())
    );
    let url = format!("{}/summary", world.server.admin_url());
    let summary = Client::new().get(&url, &[]).await.unwrap().json();
    assert_eq!(
        (&summary["data_calls"], &summary["token_posts"]),
        (&1.into(), &1.into())
    );
    assert_eq!(summary["by_status"]["200"], 1);
}

#[tokio::test]
async fn calls_are_listed_by_path_status_and_time() {
    let world = World::new().await;
    for path in "live/bus?a=1 live/tram history/bus?bytes=9 nothing".split(' ') {
        world.status(&format!("/v1/{path}")).await;
    }
    world.status_of("/v1/live/bus", "wrong").await;
    let second = world.server.ledger().arrivals()[1].at.as_secs_f64();
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
        let (status, calls) = world.listed(query).await;
        assert_eq!((status, calls.len()), (200, expected), "{query}");
    }
}

#[tokio::test]
async fn a_wait_ends_with_the_calls_or_its_timeout() {
    let world = World::new().await;
    let query = "/ledger?status=200&wait=3&timeout=20s";
    let url = format!("{}{query}", world.server.admin_url());
    let waiting = tokio::spawn(async move { Client::new().get(&url, &[]).await.unwrap() });
    for token in [&*world.token, "wrong", &world.token, "wrong"] {
        world.status_of("/v1/live/bus", token).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    world.status("/v1/live/bus").await;
    let got = waiting.await.unwrap();
    let calls = got.json()["arrivals"].as_array().unwrap().len();
    assert_eq!((got.status, calls), (200, 3));

    let (status, calls) = world.listed("?wait=9&timeout=50ms").await;
    assert_eq!((status, calls.len()), (504, 5));
    assert_eq!(world.listed("?wait=5").await.0, 200);
}
