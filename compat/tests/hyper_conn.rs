//! One connection of hyper under the layers: `Buffer` makes a service of it that can be cloned.

use tds_compat::{Connection, Failure, Server};
use tower::{ServiceBuilder, buffer::Buffer};

#[tokio::test]
async fn one_connection_works_under_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/v1/live/bus", "[307]")]).await?;
    let http = Connection::open(&server.url).await?;
    let stack = ServiceBuilder::new().layer(server.client()?.layer()).service(Buffer::new(http, 8));

    server.check(stack, "").await
}
