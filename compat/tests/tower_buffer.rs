//! tower's `Buffer`, below the layers around a client that is no `Clone`, and above them.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tds_compat::{Failure, Server, http};
use tower::{ServiceBuilder, ServiceExt, buffer::BufferLayer, util::BoxService};

#[tokio::test]
async fn buffer_works_on_either_side_of_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/bus", "[307]")]).await?;
    let (tds, buffer) = (server.client()?.layer(), BufferLayer::new(8));
    let below = ServiceBuilder::new().layer(tds.clone()).layer(buffer).service(BoxService::new(http::<Full<Bytes>>()));
    let above = ServiceBuilder::new().layer(buffer).layer(tds).service(http::<Full<Bytes>>());

    let write =
        |name: &str| Ok::<_, Failure>(Request::put(server.uri(&format!("/bus?{name}"))?).body("[308,309]".into())?);
    assert_eq!(below.oneshot(write("below")?).await?.status(), 200);
    assert_eq!(above.oneshot(write("above")?).await?.status(), 200);
    assert_eq!(
        server.seen(),
        ["PUT /bus?below 9 503", "PUT /bus?below 9 200", "PUT /bus?above 9 503", "PUT /bus?above 9 200",]
    );
    Ok(())
}
