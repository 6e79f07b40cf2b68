//! For whoever has reqwest already and wants the limits alone.
//!
//! ```text
//! cargo run --bin with-reqwest
//! ```
//!
//! The layers want a service of `http::Request`, which reqwest's client becomes by a `service_fn`, or
//! in one line by `tower_tds::Reqwest`. Its sockets nobody can count, and so they are bounded by a sum: `CLIENTS.md` of
//! `tower-tds-limits` has it.

use std::{num::NonZeroU32, process::ExitCode};

use http::Request;
use http_body_util::BodyExt;
use tds_examples::{end, no_argument, say, tally};
use tds_sim::{Config, Server};
use tokio::task::JoinSet;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};

const HALF: NonZeroU32 = NonZeroU32::MIN.saturating_add(24);

#[tokio::main]
async fn main() -> ExitCode {
    end(run().await)
}

async fn run() -> Result<(), BoxError> {
    no_argument("with-reqwest, without arguments")?;
    let server = Server::start(Config::default()).await?;
    let token = server.sim().token(server.client_id())?; // from wherever you have it

    let reqwest = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .http1_only()
        .pool_max_idle_per_host(25)
        .build()?;
    let http = service_fn(move |request: Request<reqwest::Body>| {
        let reqwest = reqwest.clone();
        async move {
            let response = reqwest.execute(request.try_into()?).await?;
            // Boxed, so that the limits see what it comes of: of a refused connect nothing was sent.
            Ok::<_, BoxError>(http::Response::<reqwest::Body>::from(response))
        }
    });
    // 25 in flight, 25 idle and some being opened are fewer than 60.
    let limiter = Limiter::new(Limits::default().in_flight(HALF));
    let service = RequestLimitLayer::new(limiter).layer(http);

    let mut calls = JoinSet::new();
    for n in 0..120 {
        let request = Request::get(format!("{}/v1/live/bus-{n}", server.base_url()))
            .header("authorization", format!("Bearer {token}"))
            .body(reqwest::Body::default())?;
        // Each reads its body: a response that is kept unread keeps its place in flight.
        let call = service.clone().oneshot(request);
        calls.spawn(async move { Ok::<_, BoxError>(call.await?.collect().await?.to_bytes()) });
    }
    let (bodies, outcome) = tally(calls.join_all().await);
    say(&format!("{bodies} bodies read\n"))?;
    let seen = server.ledger().summary();
    say(&format!("answers by status: {:?}\n", seen.by_status))?;
    say(&format!("at most {} in any second\n", seen.largest_second))?;
    outcome
}
