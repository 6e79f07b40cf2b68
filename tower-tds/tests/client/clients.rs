//! The layer of a client around other clients of the same service, and among tower's own layers.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::Config;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_tds::{
    Client, Kind, Limits, TdsLayer,
    layers::{errors::DeadlineAt, limits::ConnectionLimitLayer, token::Origin},
};

use crate::client::world::{Built as _, PATH, builder, count, served, start};

type Http = legacy::Client<<ConnectionLimitLayer as Layer<HttpConnector>>::Service, Full<Bytes>>;

/// hyper-util's client within the connections of another one, without idle ones.
fn http(client: &Client) -> Http {
    let sockets = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    legacy::Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(sockets)
}

fn request(target: String) -> Request<Full<Bytes>> {
    let request = Request::get(target).body(Full::default());
    request.expect("a request")
}

/// Requests as kube and tonic send them, and as a proxy passes them on.
#[tokio::test]
async fn request_with_only_a_path_goes_to_the_one_origin() {
    let (server, client) = served().await;
    let http = http(&client);
    let service = client.layer().layer(http.clone());
    for target in [PATH, "/v1/live/bus?$top=1"] {
        let answer = service.clone().oneshot(request(target.to_owned())).await;
        assert_eq!(answer.expect("data").status(), StatusCode::OK);
    }
    // With two origins, the one that is meant is unknown.
    let origins = [server.base_url(), "https://d.example"]
        .map(|url| Origin::from_uri(&url.parse().expect("a URL")).expect("an origin"));
    let two = TdsLayer::new(client.tokens().clone(), origins, client.limiter().clone());
    let error = two.layer(http).oneshot(request(PATH.to_owned())).await;
    let error = error.map(drop).expect_err("no origin");
    assert_eq!(error.kind(), Kind::InvalidRequest);
    assert_eq!(server.ledger().summary().data_calls, 2);
}

#[tokio::test]
async fn refused_call_releases_its_socket_for_the_token_request() {
    let server = start(Config::default()).await;
    let limits = Limits::default().connections(count(1)).in_flight(count(1));
    let client = builder(&server).limits(limits).built();
    let service = client.layer().layer(http(&client));
    let call = || {
        let mut request = request(PATH.to_owned());
        // Each closed socket keeps the only permit for a second.
        let deadline = Instant::now() + Duration::from_secs(10);
        let deadline = DeadlineAt::new(deadline.into_std());
        request.extensions_mut().insert(deadline);
        service.clone().oneshot(request)
    };
    let first = call().await.expect("data").into_body().collect().await;
    first.expect("a whole body");
    server.sim().revoke_all();
    // The refused call has the only socket, and the next token request needs it.
    let second = call().await.map(drop);
    assert_eq!(second.map_err(|error| error.to_string()), Ok(()));
    assert_eq!(server.ledger().summary().token_posts, 2);
}
