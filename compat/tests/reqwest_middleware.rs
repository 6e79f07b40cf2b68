//! reqwest-middleware: the client is its last middleware, in place of reqwest's own.

use async_trait::async_trait;
use bytes::Bytes;
use http::Extensions;
use reqwest::{Body, Client, Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, Error, Middleware, Next};
use tds_compat::{Failure, Server, answered};
use tower::ServiceExt;
use tower_tds::RequestBody;

struct Ours(tower_tds::Client);

#[async_trait]
impl Middleware for Ours {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response, Error> {
        let bytes = request.body().and_then(Body::as_bytes).map(Bytes::copy_from_slice);
        let request: http::Request<Body> = request.try_into()?;
        let request = request.map(|body| match bytes {
            Some(bytes) => bytes.into(),
            None => RequestBody::stream(body),
        });
        let response = answered(self.0.clone().oneshot(request).await).map_err(Error::middleware)?;
        Ok(response.map(Body::wrap).into())
    }
}

#[tokio::test]
async fn reqwest_middleware_sends_through_the_client() -> Result<(), Failure> {
    let server = Server::start(&[("/bus", "[307]")]).await?;
    let client = ClientBuilder::new(Client::new()).with(Ours(server.client()?)).build();
    let (bus, no) = (format!("{}/bus", server.url), format!("{}/no", server.url));

    assert_eq!(client.get(&bus).send().await?.text().await?, "[307]");
    client.put(bus).body("[308,309]").send().await?;
    let missing = client.get(no).send().await?;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert_eq!(server.seen(), ["GET /bus 0 200", "PUT /bus 9 503", "PUT /bus 9 200", "GET /no 0 404"]);
    Ok(())
}
