//! tower-http-client: its methods are those of any service.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tds_compat::{Failure, Server, http};
use tower::Layer;
use tower_http_client::{ResponseExt, ServiceExt};

#[tokio::test]
async fn tower_http_client_calls_through_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/v1/live/bus", "[307]")]).await?;
    let mut stack = server.client()?.layer().layer(http::<Full<Bytes>>());

    let read = stack.get(server.uri("/v1/live/bus")?).send().await?;
    assert_eq!(read.body_reader().json::<Vec<u32>>().await?, [307]);
    stack.put(server.uri("/v1/live/bus")?).json(&[308, 309])?.send().await?;
    let missing = stack.get(server.uri("/nothing")?).send().await.expect_err("an error");
    assert_eq!(missing.status(), Some(StatusCode::NOT_FOUND));
    assert_eq!(
        server.seen(),
        ["GET /v1/live/bus 0 200", "PUT /v1/live/bus 9 503", "PUT /v1/live/bus 9 200", "GET /nothing 0 404",]
    );
    Ok(())
}
