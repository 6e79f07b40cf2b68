//! hyper-util's pool that is made of parts, under the layers.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::{client::pool::cache, rt::TokioExecutor};
use tds_compat::{Connection, Failure, Server};
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

#[tokio::test]
async fn pool_of_parts_works_under_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/v1/live/bus", "[307]")]).await?;
    let url = server.url.clone();
    let connect = service_fn(move |(): ()| {
        let url = url.clone();
        Box::pin(async move { Connection::open(&url).await })
    });
    let pool = cache::builder().executor(TokioExecutor::new()).build(connect);
    let http = service_fn(move |request: Request<Full<Bytes>>| {
        let connection = pool.clone().oneshot(());
        async move { connection.await?.oneshot(request).await.map_err(BoxError::from) }
    });
    let stack = ServiceBuilder::new().layer(server.client()?.layer()).service(http);

    server.check(stack, "").await
}
