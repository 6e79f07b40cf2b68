//! reqwest under the layers: one function makes it a service of `http` types.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use reqwest::{Body, Client, redirect, retry};
use tds_compat::{Failure, Seen, Server, json};
use tower::{Layer, ServiceExt, service_fn};

#[tokio::test]
async fn reqwest_works_under_the_layers_and_refuses_upgrades() -> Result<(), Failure> {
    let server = Server::answering(|call: &Seen| match call.uri.path() {
        "/v1/live/bus" => json(200, "[307]"),
        "/socket" => json(101, ""),
        _ => json(404, "{}"),
    })
    .await?;
    let http = Client::builder().redirect(redirect::Policy::none()).retry(retry::never()).build()?;
    let reqwest = service_fn(move |request: Request<Full<Bytes>>| {
        let sent = request.map(Body::wrap).try_into().map(|request| http.execute(request));
        async move { Ok::<_, reqwest::Error>(Response::<Body>::from(sent?.await?)) }
    });
    let stack = server.client()?.layer().layer(reqwest);

    server.check(stack.clone(), &server.url).await?;
    let missing = Request::get(server.uri("/nothing")?).body(Full::default())?;
    let missing = stack.clone().oneshot(missing).await.expect_err("an error without its response");
    assert_eq!(missing.status(), Some(StatusCode::NOT_FOUND));
    let socket = Request::get(server.uri("/socket")?).header("connection", "upgrade").header("upgrade", "websocket");
    let refused = stack.oneshot(socket.body(Full::default())?).await.expect_err("no call");
    assert!(refused.to_string().contains("upgrade"), "{refused}");
    assert_eq!(server.seen()[3..], ["GET /nothing 0 404", "GET /socket 0 101"]);
    Ok(())
}
