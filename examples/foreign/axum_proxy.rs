//! A proxy for your team: an axum server that passes requests on, with the token and within the limits.
//!
//! Its users need no credentials, and all of them together stay within the limits.

use std::{error::Error, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use tds_sim::{Config, Server};
use tokio::{net::TcpListener, time::timeout};
use tower::ServiceExt;
use tower_tds::{Client, Credentials, RequestBody};

async fn proxy(State(client): State<Client>, mut request: Request) -> Response {
    // The host of the request names this proxy, so it is not passed on.
    request.headers_mut().remove("host");
    let answer = client.oneshot(request.map(RequestBody::stream)).await;
    // A 404 of the service is a 404 of the proxy and no error.
    match answer.map_err(tower_tds::Error::into_response) {
        Ok(response) => response.into_response(),
        Err(Ok(refusal)) => refusal.map(Body::from).into_response(),
        Err(Err(error)) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn health(State(client): State<Client>) -> (StatusCode, String) {
    // A balancer sends no requests before this is 200, and without requests nothing else gets a token.
    drop(timeout(Duration::from_secs(1), client.tokens().ready()).await);
    let status = client.status();
    let ready = if status.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (ready, status.to_string())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start(Config::default()).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;
    let routes = Router::new().route("/health", get(health)).fallback(proxy);
    // Port 0 picks a free port. Your program has a fixed one, and ends with
    // `axum::serve(..).await?`.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, routes.with_state(client)).await });

    let user = reqwest::Client::builder().no_proxy().build()?;
    for path in ["/v1/live/bus", "/v1/no/such/line", "/health"] {
        let response = user.get(format!("{url}{path}")).send().await?;
        println!(
            "{path}: {}, {}",
            response.status(),
            response.text().await?.trim()
        );
    }
    for call in server.ledger().arrivals() {
        let status = call.status.unwrap_or_default();
        println!("the service answered {} with {status}", call.target);
    }
    Ok(())
}
