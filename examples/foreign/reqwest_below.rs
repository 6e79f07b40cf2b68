//! All layers around reqwest, which one function turns into a service of `http` types.

use http::{Request, Response};
use reqwest::{redirect, retry};
use tds_sim::{Config, Server};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_tds::{Client, Credentials, Limits};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = Server::start(Config::default()).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    // reqwest's connector cannot hold a permit for each socket. Bound the calls in flight and the
    // idle sockets instead: 25 of each leave ten of the 60 sockets for connection attempts.
    let limits = Limits::default().in_flight(25.try_into()?);
    let tds = Client::builder(server.auth_url(), server.base_url(), credentials)
        .limits(limits)
        .build()?;

    let http = reqwest::Client::builder()
        .no_proxy() // the simulator is on this machine
        .http1_only()
        .pool_max_idle_per_host(25)
        // A redirect would forward the token, and a retry of reqwest would take no permit.
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .build()?;
    let reqwest = service_fn(move |request: Request<String>| {
        let sent = request.try_into().map(|request| http.execute(request));
        async move { Ok::<_, reqwest::Error>(Response::<reqwest::Body>::from(sent?.await?)) }
    });
    let service = tds.layer().layer(reqwest);

    for name in ["bus", "metro", "rail"] {
        let target = format!("{}/v1/live/{name}", server.base_url());
        let request = Request::get(target).body(String::new())?;
        let response = service.clone().oneshot(request).await?;
        println!("{name}: {}", response.status());
    }
    let seen = server.ledger().summary();
    println!(
        "the service saw {} calls and {} token request",
        seen.data_calls, seen.token_posts
    );
    Ok(())
}
