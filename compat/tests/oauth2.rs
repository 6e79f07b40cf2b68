//! oauth2: its HTTP client is a function of `http` types.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use oauth2::{ClientId, HttpRequest, HttpResponse, RequestTokenError, TokenResponse, TokenUrl, basic::BasicClient};
use tds_compat::{Failure, Seen, Server, answered, http, json};
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_tds::Error;

#[tokio::test]
async fn oauth2_gets_tokens_and_typed_errors_through_the_layers() -> Result<(), Failure> {
    let server = Server::answering(|call: &Seen| match call.uri.path() {
        "/token" => json(200, r#"{"access_token":"other","token_type":"bearer"}"#),
        _ => json(400, r#"{"error":"invalid_scope"}"#),
    })
    .await?;
    let stack =
        ServiceBuilder::new().map_result(answered).layer(server.client()?.layer()).service(http::<Full<Bytes>>());
    let http = |request: HttpRequest| {
        let call = stack.clone().oneshot(request.map(Full::from));
        async {
            let (head, body) = call.await?.into_parts();
            let body = body.collect().await.map_err(BoxError::from)?;
            Ok::<_, Error>(HttpResponse::from_parts(head, body.to_bytes().to_vec()))
        }
    };
    let at = |path| TokenUrl::from_url(format!("{}{path}", server.url).parse().expect("a URL"));
    let client = BasicClient::new(ClientId::new("me".to_owned()));

    let good = client.clone().set_token_uri(at("/token"));
    let token = good.exchange_client_credentials().request_async(&http).await?;
    assert_eq!(token.access_token().secret(), "other");
    let wrong = client.set_token_uri(at("/wrong"));
    let error = wrong.exchange_client_credentials().request_async(&http).await;
    assert!(matches!(error, Err(RequestTokenError::ServerResponse(_))), "{error:?}");
    assert_eq!(server.seen(), ["POST /token 42 200", "POST /wrong 42 400"]);
    Ok(())
}
