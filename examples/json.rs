//! Reads JSON into a type of your own, with parameters in the query.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::error::Error;

use serde::Deserialize;
use tds_sim::{Config, Server};
use tower_tds::{Client, Credentials};

/// Name only what you use: other fields of the response are ignored.
#[derive(Debug, Deserialize)]
struct Bus {
    name: String,
    status: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start(Config::default()).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;

    let call = client
        .get("/v1/live/bus")
        .header("accept", "application/json")
        // Values are encoded for you, so that a `&` in one of them starts no other parameter.
        .query("$filter", "stop eq 'Zürich & Umgebung'");
    let bus: Bus = call.await?.json().await?;
    println!("{} is {}", bus.name, bus.status);

    // If the service's format changes, you get an error that names the place, and not half a value.
    let table = client.get("/v1/history/timetable?bytes=100").await?;
    if let Err(error) = table.json::<Bus>().await {
        println!("{}: {error}", error.kind());
    }

    for call in server.ledger().arrivals() {
        println!("the service saw {} {}", call.method, call.target);
    }
    Ok(())
}
