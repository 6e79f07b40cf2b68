//! tower's boxes, timeouts and load shedding above the layers: the error is found again.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tds_compat::{Failure, Server, http};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_tds::{Error, Kind};

type Boxed = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, Error>;

#[tokio::test]
async fn boxed_stack_keeps_the_typed_error() -> Result<(), Failure> {
    let server = Server::start(&[("/bus", "[307]")]).await?;
    let stack = ServiceBuilder::new()
        .map_response(|response: Response<_>| response.map(Body::new))
        // The layers below box their errors; `Error` finds its own in the box.
        .map_err(|error: BoxError| Error::from(error))
        .load_shed()
        .concurrency_limit(10)
        .timeout(Duration::from_secs(60))
        .layer(server.client()?.layer())
        .service(http());
    let stack: Boxed = BoxCloneSyncService::new(stack);

    let read = |path| Ok::<_, Failure>(Request::get(server.uri(path)?).body(Full::default())?);
    assert_eq!(stack.clone().oneshot(read("/bus")?).await?.status(), 200);
    let write = Request::put(server.uri("/bus")?).body("[308,309]".into())?;
    assert_eq!(stack.clone().oneshot(write).await?.status(), 200);
    let missing = stack.oneshot(read("/nothing")?).await.expect_err("an error");
    assert_eq!(missing.kind(), Kind::NotFound);
    assert_eq!(server.seen(), ["GET /bus 0 200", "PUT /bus 9 503", "PUT /bus 9 200", "GET /nothing 0 404",]);
    Ok(())
}
