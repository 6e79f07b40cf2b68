//! Tokens, data and the ledger.

use tds_sim::{Config, Faults, Server};

use crate::client::{Client, Got, World, bearer};

#[tokio::test]
async fn ledger_records_a_token_and_a_data_request() {
    let server = Server::start(Config::default()).await.unwrap();
    let client = Client::new();

    let token = client.token(&server).await;
    let live = format!("{}/v1/live/bus?line=1", server.base_url());
    let Got { status, body, .. } = client.get(&live, &[bearer(&token)]).await.unwrap();
    assert_eq!(status, 200);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["name"], "bus");

    let summary = server.ledger().summary();
    assert_eq!(summary.token_posts, 1);
    assert_eq!(summary.tokens_issued, 1);
    assert_eq!(summary.data_calls, 1);
    assert_eq!(summary.by_status, [(200, 1)].into());
    assert_eq!((summary.sockets_opened, summary.peak_sockets), (1, 1));

    let arrivals = server.ledger().arrivals();
    let [arrival] = &*arrivals else {
        panic!("one arrival, not {}", arrivals.len())
    };
    assert_eq!(&*arrival.target, "/v1/live/bus?line=1");
    assert_eq!((arrival.token, arrival.status), (Some(1), Some(200)));
    assert!(arrival.peer.ip().is_loopback());
    server.shutdown().await;
}

#[tokio::test]
async fn dropped_server_accepts_no_connections() {
    let server = Server::start(Config::default()).await.unwrap();
    let url = format!("{}/v1/live/bus", server.base_url());
    assert_eq!(Client::new().get(&url, &[]).await.unwrap().status, 401);
    drop(server);
    // The listening task ends at its next poll.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!(Client::new().get(&url, &[]).await.is_err());
}

#[tokio::test]
async fn http2_is_served_and_faults_break_its_requests() {
    let world = World::new().await;
    let client = Client::http2();
    let url = world.url("/v1/history/a?bytes=100000");
    for coding in ["", "br", "gzip"] {
        let headers = [
            bearer(&world.token),
            ("content-encoding", coding.to_owned()),
        ];
        let got = client.get(&url, &headers).await.unwrap();
        assert_eq!((got.status, got.header("content-encoding")), (200, coding));
    }
    assert_eq!(world.server.ledger().summary().sockets_opened, 1);

    for fault in ["reset-head", "reset-body", "truncate", "garbage"] {
        let mut faults = Faults::default();
        faults.data.push(fault.parse().unwrap());
        world.server.set_faults(faults);
        let got = Client::http2().get(&url, &[bearer(&world.token)]).await;
        assert!(got.is_err(), "{fault}");
    }
}

#[tokio::test]
async fn shutdown_waits_for_a_response_in_progress() {
    let world = World::new().await;
    let url = world.url("/v1/history/a?bytes=100&rate=10000");
    let (ledger, token) = (world.server.ledger(), world.token);
    let call = tokio::spawn(async move { Client::new().get(&url, &[bearer(&token)]).await });
    while ledger.summary().data_calls == 0 {
        tokio::task::yield_now().await;
    }
    world.server.shutdown().await;
    assert_eq!(call.await.unwrap().unwrap().body.len(), 100);
    assert_eq!(ledger.summary().complete, 1);
}
