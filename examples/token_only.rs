//! The token layer alone, around hyper-util's client.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::error::Error;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tds_sim::{Config, Server};
use tower::{Layer, ServiceExt};
use tower_oidc_cc::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = Server::start(Config::default()).await?;
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();

    let endpoint = TokenEndpoint::keycloak(server.auth_url(), "ServiceConnect")?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    // Any client can fetch the token. Here it is the same one.
    let tokens = TokenSource::builder(endpoint, credentials).build(http.clone());
    // For any other host than this machine only https is allowed, because a token that can be read on
    // the way can be used by others.
    let origin = Origin::from_uri(&server.base_url().parse()?)?;
    let service = BearerAuthLayer::new(tokens, [origin]).layer(http);

    for name in ["bus", "metro", "rail"] {
        let target = format!("{}/v1/live/{name}", server.base_url());
        let request = Request::get(target).body(Full::<Bytes>::default())?;
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
