//! opentelemetry-http: an exporter's client is a trait, whose method calls the client.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use opentelemetry_http::{HttpClient, HttpError};
use tds_compat::{Failure, Server, answered};
use tower::ServiceExt;
use tower_tds::Client;

#[derive(Debug)]
struct Ours(Client);

#[async_trait]
impl HttpClient for Ours {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = answered(self.0.clone().oneshot(request).await)?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }
}

#[tokio::test]
async fn exporter_sends_through_the_client() -> Result<(), Failure> {
    let server = Server::start(&[("/v1/traces", "{}")]).await?;
    let exporter = Ours(server.client()?);

    let call = async |request: http::request::Builder, body: &'static str| {
        exporter.send_bytes(request.body(body.into()).expect("a request")).await
    };
    assert_eq!(call(Request::post(server.uri("/v1/traces")?), "spans").await?.body(), "{}");
    assert_eq!(call(Request::put(server.uri("/v1/traces")?), "spans").await?.body(), "{}");
    let missing = call(Request::post(server.uri("/nothing")?), "spans").await?;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert_eq!(
        server.seen(),
        ["POST /v1/traces 5 200", "PUT /v1/traces 5 503", "PUT /v1/traces 5 200", "POST /nothing 5 404",]
    );
    Ok(())
}
