//! The layer of a client around other clients of the same service.

use std::num::NonZeroU32;

use bytes::Bytes;
use http::{
    Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body_util::{BodyExt, Either, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server, Summary};
use tokio::task::JoinSet;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::decompression::DecompressionLayer;
use tower_tds::{
    Client, Credentials, Error, Kind, Limits, TdsLayer,
    layers::{limits::ConnectionLimitLayer, token::Origin},
};

use crate::client::sim::{self, client, start};

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

/// The example `reqwest_below` has the same function.
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
        async move { Ok::<_, reqwest::Error>(Response::<reqwest::Body>::from(sent?.await?)) }
    });
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    is_the_whole_stack(&server, service, Bytes::new).await;
}

/// Requests as kube and tonic send them, and as a proxy passes them on.
#[tokio::test]
async fn request_with_only_a_path_goes_to_the_one_origin() {
    let server = start(Config::default()).await;
    let client = client(&server);
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let service = ServiceBuilder::new()
        .layer(client.layer())
        .service(http.clone());
    for target in ["/v1/live/bus", "/v1/live/bus?$top=1"] {
        let request = Request::get(target).body(Full::default());
        let answer = service.clone().oneshot(request.expect("a request")).await;
        assert_eq!(answer.expect("data").status(), StatusCode::OK);
    }
    // With two origins, the one that is meant is unknown.
    let here = Origin::from_uri(&server.base_url().parse().expect("a URL")).expect("an origin");
    let other = Origin::from_uri(&"https://d.example".parse().expect("a URL")).expect("an origin");
    let tokens = client.tokens().clone();
    let two = TdsLayer::new(tokens, [here, other], client.limiter().clone());
    let service = ServiceBuilder::new().layer(two).service(http);
    let request = Request::get("/v1/live/bus").body(Full::default());
    let error = service.oneshot(request.expect("a request")).await.map(drop);
    assert_eq!(error.expect_err("no origin").kind(), Kind::InvalidRequest);
    assert_eq!(server.ledger().summary().data_calls, 2);
}

/// For `map_result`: an error with a status is a response again.
fn answered<B>(
    result: Result<Response<B>, Error>,
) -> Result<Response<Either<B, Full<Bytes>>>, Error> {
    match result {
        Ok(response) => Ok(response.map(Either::Left)),
        Err(error) => Ok(error
            .into_response()?
            .map(|body| Either::Right(body.into()))),
    }
}

#[tokio::test]
async fn answered_errors_are_responses_for_those_who_read_statuses() {
    let server = start(Config::default()).await;
    let client = client(&server);
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let service = ServiceBuilder::new()
        .map_result(answered)
        .layer(client.layer())
        .service(http);
    let none = || Request::get("/no/such/thing").body(Full::<Bytes>::default());
    let answer = service
        .oneshot(none().expect("a request"))
        .await
        .expect("a response");
    let own = answered(client.oneshot(none().expect("a request")).await);
    let own = own.expect("a response");
    assert_eq!(
        (answer.status(), own.status()),
        (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND)
    );
    let answer = answer.into_body().collect().await.expect("a whole body");
    let own = own.into_body().collect().await.expect("a whole body");
    assert!(!own.to_bytes().is_empty() && answer.to_bytes().len() > 2);

    // A token that is refused is no response to the call.
    let refused = Client::builder(
        server.auth_url(),
        server.base_url(),
        Credentials::new("nobody", "wrong").expect("usable"),
    );
    let refused = refused.loopback_http().build().expect("a client");
    let error = answered(refused.oneshot(none().expect("a request")).await);
    assert_eq!(error.expect_err("no token").kind(), Kind::TokenRefused);
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
