//! http-cache above the layers: what it has takes neither a permit nor a token.

use bytes::Bytes;
use http::{HeaderValue, Request, header::CACHE_CONTROL};
use http_body_util::{BodyExt, Full};
use http_cache::MokaManager;
use http_cache_tower::HttpCacheLayer;
use tds_compat::{Failure, Seen, Server, http, json};
use tower::{ServiceBuilder, ServiceExt};

#[tokio::test]
async fn cached_response_is_read_once() -> Result<(), Failure> {
    let server = Server::answering(|call: &Seen| {
        let mut response = json(if call.uri.path() == "/bus" { 200 } else { 404 }, "[307]");
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
        response
    })
    .await?;
    let stack = ServiceBuilder::new()
        .layer(HttpCacheLayer::new(MokaManager::default()))
        .layer(server.client()?.layer())
        .service(http());

    for path in ["/bus", "/bus"] {
        let request = Request::get(server.uri(path)?).body(Full::<Bytes>::default())?;
        let bus = stack.clone().oneshot(request).await?.into_body().collect().await?;
        assert_eq!(bus.to_bytes(), "[307]");
    }
    let write = Request::put(server.uri("/bus")?).body(Full::<Bytes>::from("[308,309]"))?;
    stack.oneshot(write).await?;
    assert_eq!(server.seen(), ["GET /bus 0 200", "PUT /bus 9 503", "PUT /bus 9 200"]);
    Ok(())
}
