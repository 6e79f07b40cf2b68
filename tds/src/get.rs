//! `tds get`: one response, for scripts and cron.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use clap::Args;
use tokio::time::{Instant, sleep, timeout};
use tower_tds::{Client, Error};

use crate::{
    answer,
    exit::{Exit, Failure},
    list, output, save,
    service::Service,
    settings::{Settings, duration},
};

/// Write one response: data, or nothing and an exit code
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is written unless the answer came whole. The token is kept for the next start, and starts at the same moment go one after another."
)]
pub(crate) struct Get {
    /// Path and query, sent byte for byte: '/v1/live/bus?$top=5'
    #[arg(value_parser = list::target)]
    path: String,
    /// Write to this file, which is replaced once the answer is whole
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Give up after this time, whatever it waits for
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    deadline: Duration,
}

pub(crate) async fn run(job: Get, settings: &Settings) -> Result<Exit, Failure> {
    save::check("--out", job.out.as_deref()).await?;
    let Service {
        builder,
        state,
        simulated,
        ..
    } = settings.service_for_one().await?;
    let begun = Instant::now();
    let Ok(client) = timeout(job.deadline, settings.client(builder)).await else {
        let why =
            "the deadline passed while waiting for a share of the fleet's limits; nothing was sent";
        return Err(Failure::new(Exit::Unreachable, why));
    };
    let client = client?;
    let left = || job.deadline.saturating_sub(begun.elapsed());
    // The token comes first: processes that wait for the same token begin together, and their turns
    // spread them.
    let Ok(token) = timeout(left(), client.tokens().ready()).await else {
        return Err(Failure::new(Exit::Unreachable, no_token(&client)));
    };
    if let (Some(state), Ok(_)) = (&state, token) {
        let Ok(turn) = timeout(left(), state.turn()).await else {
            return Err(Failure::new(Exit::Unreachable, state.held()));
        };
        sleep(turn.min(left())).await;
    }
    let answer = get(&client, &job.path, left()).await;
    // A new token is for the next start. It is saved before its use, so this usually ends at once.
    drop(timeout(left().min(SAVING), client.tokens().idle()).await);
    drop(simulated);
    let answer = answer?;
    match &job.out {
        Some(path) => save::write(path, &answer).await?,
        None => drop(output::print(&answer)?),
    }
    Ok(Exit::Whole)
}

/// The line for a token endpoint that did not answer before the deadline.
fn no_token(client: &Client) -> String {
    let health = client.tokens().health();
    let last = health.last_error.as_ref();
    let last = last.map(|error| format!(" ({error})")).unwrap_or_default();
    let endpoint = health.endpoint;
    format!("the deadline passed while waiting for a token from {endpoint}{last}; nothing was sent")
}

async fn get(client: &Client, path: &str, left: Duration) -> Result<Bytes, Error> {
    let call = answer::plain(client.get(path)).deadline(left);
    answer::whole(call.await?, path).await
}

/// A token request takes ten seconds at most.
const SAVING: Duration = Duration::from_secs(15);
