//! One call, and its body as text.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::error::Error;

use tds_sim::{Config, Server};
use tower_tds::{Client, Credentials};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start(Config::default()).await?;

    // For your service, replace these two lines by `Builder::from_env()?.build()?`, which reads TDS_AUTH_URL,
    // TDS_BASE_URL, TDS_CLIENT_ID and TDS_CLIENT_SECRET.
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;

    // This fetches the token, so that wrong credentials fail here. Without this line, the first
    // call fetches it.
    client.tokens().ready().await?;

    let bus = client.get("/v1/live/bus").await?.text().await?;
    print!("{bus}");

    let seen = server.ledger().summary();
    println!(
        "the service saw {} token request and {} call",
        seen.token_posts, seen.data_calls
    );
    Ok(())
}
