//! tower-http, above and below the layers, in twelve orders.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header::USER_AGENT};
use http_body_util::{BodyExt, Full};
use tds_compat::{Failure, Server, http};
use tower::ServiceBuilder;
use tower_http::ServiceBuilderExt as _;
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_http::request_id::MakeRequestUuid;
use tower_http::timeout::{ResponseBodyTimeoutLayer, TimeoutLayer};
use tower_http::trace::TraceLayer;

#[tokio::test]
async fn tower_http_works_in_twelve_orders() -> Result<(), Failure> {
    const MINUTE: Duration = Duration::from_secs(60);
    let agent = HeaderValue::from_static("compat");
    let timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, MINUTE);
    let redirect = FollowRedirectLayer::new;
    let server = &Server::start(&[("/v1/live/bus", "[307]")]).await?;
    let (tds, url) = (&server.client()?.layer(), &*server.url);
    let tds = || tds.clone();
    let stack = ServiceBuilder::new;

    server.check(stack().layer(TraceLayer::new_for_http()).layer(tds()).service(http()), url).await?;
    server.check(stack().layer(tds()).layer(TraceLayer::new_for_http()).service(http()), url).await?;
    server.check(stack().decompression().layer(tds()).service(http()), url).await?;
    server.check(stack().layer(tds()).decompression().service(http()), url).await?;
    server.check(stack().layer(redirect()).layer(tds()).service(http()), url).await?;
    server.check(stack().layer(tds()).layer(redirect()).service(http()), url).await?;
    server.check(stack().override_request_header(USER_AGENT, agent).layer(tds()).service(http()), url).await?;
    server.check(stack().map_response_body(BodyExt::boxed).layer(tds()).service(http()), url).await?;
    server.check(stack().layer(tds()).map_request_body(|body: Full<Bytes>| body.boxed()).service(http()), url).await?;
    server.check(stack().set_x_request_id(MakeRequestUuid).layer(tds()).service(http()), url).await?;
    server.check(stack().layer(ResponseBodyTimeoutLayer::new(MINUTE)).layer(tds()).service(http()), url).await?;
    server.check(stack().layer(timeout).layer(tds()).map_response_body(BodyExt::boxed).service(http()), url).await
}
