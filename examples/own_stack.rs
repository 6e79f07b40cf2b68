//! All layers in one line, around an HTTP client of your own. Here it is hyper-util's.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::error::Error;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_tds::{Client, Credentials, layers::limits::ConnectionLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = Server::start(Config::default()).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    // Your stack uses the token and the limits of this `Client`, so calls through either share
    // both.
    let tds = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;

    // Each socket holds a permit. For a real service, put TLS around the connector, as in
    // `own_stack_https`.
    let sockets = ConnectionLimitLayer::new(tds.limiter().clone());
    let mut tcp = HttpConnector::new();
    // Without this timeout, the kernel resends abandoned requests when a cut of the network heals.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(tds.limiter().limits().tcp_user_timeout()));
    let http = Http::builder(TokioExecutor::new()).build(sockets.layer(tcp));
    // Your own layers go above or below. A layer above sees each call once; a layer below sees each
    // attempt.
    let service = ServiceBuilder::new().layer(tds.layer()).service(http);

    for name in ["bus", "metro", "rail"] {
        let target = format!("{}/v1/live/{name}", server.base_url());
        let request = Request::get(target).body(Empty::<Bytes>::new())?;
        let response = service.clone().oneshot(request).await?;
        let body = response.into_body().collect().await?.to_bytes();
        println!("{name}: {} bytes", body.len());
    }
    let seen = server.ledger().summary();
    println!(
        "the service saw {} calls and {} token request",
        seen.data_calls, seen.token_posts
    );
    Ok(())
}
