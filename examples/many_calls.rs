//! Two hundred calls at once, to a service that refuses more than fifty a second.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::{error::Error, time::Duration};

use tds_sim::{Config, Server};
use tokio::task::JoinSet;
use tower_tds::{Client, Credentials};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut config = Config::default();
    // On a real network, requests that are sent evenly still arrive in bunches, so spacing them
    // would not be enough.
    config.faults.before_counting = "lognormal:5ms:100ms".parse()?;
    let server = Server::start(config).await?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials).build()?;

    let mut calls = JoinSet::new();
    for line in 0..200 {
        // The deadline includes the wait for the limits. A call that cannot meet it ends at once
        // with an error, and costs the others nothing.
        let call = client
            .get(format!("/v1/live/bus-{line}"))
            .deadline(Duration::from_secs(30));
        // A response holds its slot in flight until its body is read, so each task reads its own.
        calls.spawn(async move { call.await?.bytes().await });
    }
    let (mut answered, mut failed) = (0, 0);
    while let Some(call) = calls.join_next().await {
        match call? {
            Ok(_) => answered += 1,
            Err(error) => {
                failed += 1;
                println!("{error}");
            }
        }
    }
    println!("{answered} answered, {failed} failed");

    let seen = server.ledger().summary();
    println!(
        "the service saw at most {} calls in a second and {} sockets, {} token request, and answered {:?}",
        seen.largest_second, seen.peak_sockets, seen.token_posts, seen.by_status
    );
    Ok(())
}
