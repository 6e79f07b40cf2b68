//! gRPC through the layers: a client of tonic takes any service that carries its body.

use http::{Request, uri::PathAndQuery};
use http_body_util::{Either, Full};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server};
use tonic::{body::Body, client::Grpc};
use tonic_prost::ProstCodec;
use tower::{BoxError, Layer, ServiceBuilder};
use tower_tds::{
    Client, Credentials, Error,
    layers::{errors::RetryLayer, limits::ConnectionLimitLayer},
};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = Server::start(Config::default()).await?;
    // The simulator has no gRPC, so this sets an answer for one method: the status, five bytes of
    // framing, and a message whose first field is the text.
    let answer = serde_json::json!({
        "headers": {"content-type": "application/grpc", "grpc-status": "0"},
        "body": "\0\0\0\0\u{9}\n\u{7}on time",
    });
    let stub = Request::put(format!("{}/stub/lines.Lines/Status", server.admin_url()))
        .header("content-type", "application/json")
        .body(answer.to_string())?;
    Http::builder(TokioExecutor::new())
        .build_http()
        .request(stub)
        .await?;

    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let tds = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;
    let mut tcp = HttpConnector::new();
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(tds.limiter().limits().tcp_user_timeout()));
    let sockets = ConnectionLimitLayer::new(tds.limiter().clone()).layer(tcp);
    let http = Http::builder(TokioExecutor::new())
        .http2_only(true)
        .build(sockets);

    // A stream can be sent only once, so it is not kept for another attempt: a call that fails is
    // not retried.
    let once = RetryLayer::new().replay(|_: &Body| None);
    // Statuses become responses again, because tonic reads them itself.
    let service = ServiceBuilder::new()
        .map_result(|result: Result<http::Response<_>, Error>| match result {
            Ok(response) => Ok::<_, Error>(response.map(Either::Left)),
            Err(error) => Ok(error
                .into_response()?
                .map(|body| Either::Right(Full::from(body)))),
        })
        .layer(tds.layer().retry(once))
        .service(http);
    // You would use the client that tonic-build generates: `LinesClient::with_origin(service, origin)`.
    let mut grpc = Grpc::with_origin(service, server.base_url().parse()?);

    grpc.ready().await?;
    let method = PathAndQuery::from_static("/lines.Lines/Status");
    let line = tonic::Request::new(String::from("307"));
    let status = grpc
        .unary(line, method, ProstCodec::<String, String>::default())
        .await?;
    println!("307: {}", status.into_inner());

    for call in server.ledger().arrivals() {
        println!(
            "the service saw {} {}, with token {:?}",
            call.method, call.target, call.token
        );
    }
    Ok(())
}
