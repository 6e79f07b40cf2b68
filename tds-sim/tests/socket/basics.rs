//! Tokens, data and the ledger.

use tds_sim::{Config, Server};

use crate::client::{Client, Got, bearer};

#[tokio::test]
async fn a_token_gets_data_and_the_ledger_saw_both() {
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
    assert_eq!(summary.token_posts_by_client[server.client_id()], 1);
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
async fn a_server_that_is_dropped_accepts_no_more() {
    let server = Server::start(Config::default()).await.unwrap();
    let url = format!("{}/v1/live/bus", server.base_url());
    assert_eq!(Client::new().get(&url, &[]).await.unwrap().status, 401);
    drop(server);
    // The listening task ends at its next poll.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!(Client::new().get(&url, &[]).await.is_err());
}
