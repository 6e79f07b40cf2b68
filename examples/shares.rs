//! For several containers behind one address, and for several keys: they share what the address
//! may do.
//!
//! ```text
//! cargo run --bin shares
//! ```
//!
//! The containers are tasks here. A real one takes its number and their count from its environment,
//! and knows nothing of the others.

use std::{num::NonZeroU32, process::ExitCode};

use http::{Request, Uri};
use http_body_util::BodyExt;
use tds_examples::{Service, end, no_argument, say, tally};
use tokio::task::JoinSet;
use tower::{BoxError, ServiceExt};
use tower_tds::{Client, Limits, RequestBody, SharedLimits};

const CONTAINERS: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

#[tokio::main]
async fn main() -> ExitCode {
    end(run().await)
}

async fn run() -> Result<(), BoxError> {
    no_argument("shares, without arguments")?;
    let service = Service::find().await?;
    let mut calls = JoinSet::new();
    for share in Limits::default()
        .shares(CONTAINERS)
        .ok_or("more processes than sockets")?
    {
        let share = SharedLimits::new(share);
        let one = service.client()?.limits(&share).build()?;
        // A second client of the same process, say for another key: the same limits, not more.
        let other = service.client()?.limits(&share).build()?;
        for n in 0..60 {
            let client = if n % 3 == 0 {
                other.clone()
            } else {
                one.clone()
            };
            calls.spawn(get(client, service.url("/v1/live/bus")?));
        }
    }
    let (served, outcome) = tally(calls.join_all().await);
    say(&format!("{served} of 180 calls served\n"))?;
    if let Some(ledger) = service.ledger() {
        let seen = ledger.summary();
        let (second, sockets) = (seen.largest_second, seen.peak_sockets);
        say(&format!(
            "at most {second} in any second, at most {sockets} sockets\n"
        ))?;
        say(&format!("answers by status: {:?}\n", seen.by_status))?;
    }
    outcome
}

async fn get(client: Client, url: Uri) -> Result<(), BoxError> {
    let request = Request::get(url).body(RequestBody::default())?;
    let response = client.oneshot(request).await?;
    response.into_body().collect().await?;
    Ok(())
}
