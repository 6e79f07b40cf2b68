//! One connection of hyper under the layers: `Buffer` makes a service of it that can be cloned.

use http::header::HOST;
use tds_compat::{Connection, Failure, Server};
use tower::{ServiceBuilder, buffer::Buffer};
use tower_http::set_header::SetRequestHeaderLayer;

#[tokio::test]
async fn one_connection_works_under_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/v1/live/bus", "[307]")]).await?;
    let http = Connection::open(&server.url).await?;
    let stack = ServiceBuilder::new()
        // As hyper's own example: a connection adds no `Host`.
        .layer(SetRequestHeaderLayer::overriding(HOST, server.host()?))
        .layer(server.client()?.layer())
        .service(Buffer::new(http, 8));

    server.check(stack, "").await
}
