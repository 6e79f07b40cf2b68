//! object_store: its connector is a trait of its own, whose method calls a service.

use http::Response;
use http_body_util::BodyExt;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind as Kind};
use object_store::client::{HttpRequest, HttpResponse, HttpResponseBody, HttpService};
use object_store::{ClientOptions, Error, ObjectStoreExt, Result, http::HttpBuilder};
use tds_compat::{Failure, Server, answered, http};
use tower::{BoxError, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

#[derive(Debug, Clone)]
struct Ours(BoxCloneSyncService<HttpRequest, HttpResponse, HttpError>);
#[async_trait::async_trait]
impl HttpService for Ours {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.0.clone().oneshot(request).await
    }
}
impl HttpConnector for Ours {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[tokio::test]
async fn object_store_reads_and_writes_through_the_layers() -> Result<(), Failure> {
    let server = Server::start(&[("/stops", "[1,2]")]).await?;
    let failed = |error: BoxError| HttpError::new(Kind::Decode, std::io::Error::other(error));
    let body = move |body| HttpResponseBody::new(BodyExt::map_err(body, failed));
    let stack = ServiceBuilder::new().map_err(|error| HttpError::new(Kind::Unknown, error));
    let stack = stack.map_response(move |response: Response<_>| response.map(body));
    let stack = stack.map_result(answered).layer(server.client()?.layer()).service(http());
    let builder = HttpBuilder::new().with_http_connector(Ours(BoxCloneSyncService::new(stack)));
    let store = builder.with_url(&server.url).build()?;
    assert_eq!(store.get(&"stops".into()).await?.bytes().await?, "[1,2]");
    store.put(&"stops".into(), "[1,2,3]".into()).await?;
    assert!(matches!(store.get(&"nobody".into()).await, Err(Error::NotFound { .. })));
    assert_eq!(server.seen(), ["GET /stops 0 200", "PUT /stops 7 503", "PUT /stops 7 200", "GET /nobody 0 404"]);
    Ok(())
}
