//! The HTTP client of an AWS SDK: a connector is a trait of smithy's, whose method calls a service.

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::{orchestrator::HttpRequest, result::ConnectorError};
use aws_smithy_types::body::SdkBody;
use http::{Request, Response};
use tds_compat::{Failure, Server, answered, http};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_tds::layers::errors::RetryLayer;

#[derive(Debug)]
struct Ours(BoxCloneSyncService<Request<SdkBody>, Response<SdkBody>, BoxError>);
impl HttpConnector for Ours {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let service = self.0.clone();
        let sent = async move { Ok(service.oneshot(request.try_into_http1x()?).await?.try_into()?) };
        let failed = |error: BoxError| ConnectorError::other(error, None);
        HttpConnectorFuture::new(async move { sent.await.map_err(failed) })
    }
}

#[tokio::test]
async fn smithy_sends_through_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/stops", "[1,2]")]).await?;
    let layer = server.client()?.layer().retry(RetryLayer::new().replay(SdkBody::try_clone));
    let stack = ServiceBuilder::new().map_err(BoxError::from);
    let stack = stack.map_response(|response: Response<_>| response.map(SdkBody::from_body_1_x));
    let stack = BoxCloneSyncService::new(stack.map_result(answered).layer(layer).service(http()));
    let connector = SharedHttpConnector::new(Ours(stack));

    for (method, path, body) in [("GET", "/stops", ""), ("PUT", "/stops", "[1,2,3]"), ("GET", "/no", "")] {
        let mut request = HttpRequest::new(SdkBody::from(body));
        request.set_method(method)?;
        request.set_uri(format!("{}{path}", server.url))?;
        assert_eq!(connector.call(request).await?.status().is_success(), path == "/stops");
    }
    assert_eq!(server.seen(), ["GET /stops 0 200", "PUT /stops 7 503", "PUT /stops 7 200", "GET /no 0 404"]);
    Ok(())
}
