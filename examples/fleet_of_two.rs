//! A fleet of two processes behind one address: they share one rate limit and one token.
//!
//! Both are in this program, so that you see them side by side. Yours will be processes or
//! containers that use the same Redis or Valkey.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::{env, error::Error, fs, io::ErrorKind, process, process::Stdio};

use tds_sim::{Config, Server};
use tokio::{process::Command, task::JoinSet};
use tower_tds::{Client, Credentials};
use tower_tds_fleet::{Fleet, RedisTokens, redis};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = env::temp_dir().join(format!("fleet-of-two-{}", process::id()));
    let mut store = Command::new("redis-server");
    store
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(&socket);
    let _store = match store.stdout(Stdio::null()).kill_on_drop(true).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: redis-server is not installed");
            return Ok(());
        }
        started => started?,
    };
    let redis = redis::Client::open(format!("redis+unix://{}", socket.display()))?;
    let server = Server::start(Config::default()).await?;

    println!("joining: a new store remembers no earlier members, so it waits 17 s for their calls");
    let member = async |name: &str| {
        let secret = server.client_secret();
        // The secret seals the token, so that reading the store does not give it away.
        let tokens = RedisTokens::new(redis.clone(), "buses", secret);
        let credentials = Credentials::new(server.client_id(), secret)?;
        // Give each member the limits of all together. The store gives it a share of them.
        let client = Client::builder(server.auth_url(), server.base_url(), credentials)
            .tokens(|source| source.store(tokens))
            .build()?;
        let fleet = Fleet::join(redis.clone(), "buses", server.base_url(), client.limiter())?;
        fleet.ready().await?;

        let mut calls = JoinSet::new();
        for line in 0..60 {
            let call = client.get(format!("/v1/live/bus-{line}"));
            calls.spawn(async move { call.await?.bytes().await });
        }
        while let Some(call) = calls.join_next().await {
            call??;
        }
        println!(
            "{name}: 60 calls, one of {} members",
            fleet.status().members
        );
        // Frees the share at once. If a member is killed instead, its share is missing for 17 s.
        fleet.leave().await;
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::try_join!(member("first"), member("second"))?;

    let seen = server.ledger().summary();
    println!(
        "the service saw {} calls and {} token request, at most {} calls in a second",
        seen.data_calls, seen.token_posts, seen.largest_second
    );
    fs::remove_file(&socket)?;
    Ok(())
}
