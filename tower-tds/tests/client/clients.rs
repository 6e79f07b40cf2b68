//! The layer of a client around other clients of the same service.

use std::num::NonZeroU32;

use bytes::Bytes;
use http::{
    Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server, Summary};
use tokio::task::JoinSet;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::decompression::DecompressionLayer;
use tower_tds::{Error, Kind, Limits, layers::limits::ConnectionLimitLayer};

use crate::sim::{self, client, start};

const PATH: &str = "/v1/live/bus";

/// Makes 120 calls, and one more after its token was revoked. A missing path is a `NotFound`.
async fn is_the_whole_stack<S, B, R>(server: &Server, service: S, empty: fn() -> B) -> Summary
where
    S: Service<Request<B>, Response = Response<R>, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let base = server.base_url().to_owned();
    let call = move |path: &str| {
        let request = Request::get(format!("{base}{path}")).body(empty());
        service.clone().oneshot(request.expect("a request"))
    };
    let mut calls = JoinSet::new();
    for _ in 0..120 {
        let call = call(PATH);
        calls.spawn(async move {
            let body = call.await?.into_body().collect().await;
            body.map_err(Into::<BoxError>::into)
        });
    }
    for body in calls.join_all().await {
        let body = body.expect("a whole body").to_bytes();
        assert!(body.starts_with(b"{\"name\""));
    }
    server.sim().revoke_all();
    let answer = call(PATH).await.expect("data");
    assert_eq!(answer.status(), StatusCode::OK);
    drop(answer);
    let error = call("/no/such/thing").await.map(drop);
    assert_eq!(error.expect_err("nothing").kind(), Kind::NotFound);
    let seen = server.ledger().summary();
    assert_eq!(seen.token_posts, 2);
    assert_eq!(
        (seen.by_status.get(&423), seen.by_status.get(&416)),
        (None, None)
    );
    assert!(
        seen.largest_second <= 50 && seen.peak_sockets <= 60,
        "{seen:?}"
    );
    seen
}

/// The cookbook has the same three.
#[tokio::test]
async fn client_layer_works_over_reqwest() {
    let server = start(Config::default()).await;
    let half = NonZeroU32::new(25).expect("it is not zero");
    let limits = Limits::default().in_flight(half);
    let client = sim::builder(&server).limits(limits).build();
    let client = client.expect("loopback is let through");
    let http = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .pool_max_idle_per_host(25)
        .build()
        .expect("a client");
    let http = service_fn(move |request: Request<Bytes>| {
        let sent = request.try_into().map(|request| http.execute(request));
        Box::pin(
            async move { Ok::<_, reqwest::Error>(Response::<reqwest::Body>::from(sent?.await?)) },
        )
    });
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    is_the_whole_stack(&server, service, Bytes::new).await;
}

#[tokio::test]
async fn client_layer_works_over_http2() {
    let server = start(Config::default()).await;
    let client = client(&server);
    let sockets = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let http = legacy::Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build(sockets);
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    let seen = is_the_whole_stack(&server, service, Full::<Bytes>::default).await;
    // All data calls share one socket; the token may have another.
    assert!(seen.peak_sockets <= 2, "{seen:?}");
}

#[tokio::test]
async fn client_layer_works_over_tower_http_decompression() {
    let server = start(Config::default()).await;
    let client = client(&server);
    let sockets = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let http = legacy::Client::builder(TokioExecutor::new()).build(sockets);
    let service = ServiceBuilder::new()
        .layer(client.layer())
        .layer(DecompressionLayer::new())
        .service(http);
    let path = "/v1/history/timetable?bytes=300000";
    // The request header that the service defines for compression.
    let coded = Request::get(format!("{}{path}", server.base_url()))
        .header(CONTENT_ENCODING, "br,gzip")
        .body(Full::<Bytes>::default());
    let answer = service.oneshot(coded.expect("a request")).await;
    let answer = answer.expect("data");
    assert!(!answer.headers().contains_key(CONTENT_LENGTH));
    let decoded = answer.into_body().collect().await;
    let plain = client.get(path).await.expect("data").bytes().await;
    assert_eq!(
        decoded.expect("a whole body").to_bytes(),
        plain.expect("a whole body")
    );
}
