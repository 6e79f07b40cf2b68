//! `tds get`: one response, for scripts and cron.

use std::{
    io::{Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tempfile::SpooledTempFile;
use tokio::time::{Instant, sleep, timeout};
use tower_tds::Client;

use crate::{
    answer::Data,
    ending::Trouble,
    exit::{Exit, Failure},
    list, output, save,
    service::Service,
    settings::{Settings, duration},
};

/// Write one response: data, or nothing and an exit code
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is written unless the response is complete. The token is kept for the next start. Starts at the same moment take turns."
)]
pub(crate) struct Get {
    /// Path and query, sent byte for byte: '/v1/live/bus?$top=5'
    #[arg(value_parser = list::target)]
    path: String,
    /// Write to this file, which is replaced once the response is complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Lines of JSON on the standard error: the end, and its cause
    #[arg(long)]
    pub(crate) json: bool,
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
    let left = || job.deadline.saturating_sub(begun.elapsed());
    let late = |what: String| {
        let why = format!("the deadline passed while waiting for {what}; data request not sent");
        Failure::new(Exit::Unreachable, why)
    };
    let client = timeout(left(), settings.client(builder)).await;
    let client = client.map_err(|_| late("a share of the fleet's limits".to_owned()))??;
    // First the token: processes that wait for the same one begin together, and their turns spread
    // them.
    let token = timeout(left(), client.tokens().ready()).await;
    let token = token.map_err(|_| late(token_of(&client)))?;
    if let (Some(state), Ok(_)) = (&state, token) {
        let turn = timeout(left(), state.turn()).await;
        sleep(turn.map_err(|_| late(state.held()))?.min(left())).await;
    }
    let answer = settings.accept.get(&client, &job.path, left()).await;
    // Waits until a new token is saved for the next start. It is saved before its use, so this
    // usually ends at once.
    drop(timeout(left().min(SAVING), client.tokens().idle()).await);
    let written = match answer {
        Ok(data) => write(data, job.out.as_deref()).await,
        Err(trouble) => Err(trouble),
    };
    drop(simulated);
    written.map_err(|trouble| trouble.failure(&job.path))?;
    Ok(Exit::Whole)
}

/// Writes data, or nothing: a body that ends early is in an unnamed file until then, or in a part.
async fn write(data: Data, path: Option<&Path>) -> Result<(), Trouble> {
    let Some(path) = path else {
        let mut spool = SpooledTempFile::new(IN_MEMORY);
        data.copy(async |data| spool.write_all(data)).await?;
        spool.rewind()?;
        return Ok(output::copy(spool).map(drop)?);
    };
    let mut part = save::own(path).await?;
    part.clear().await?;
    data.copy(async |data| part.write(data).await).await?;
    Ok(part.finish().await.map(drop)?)
}

/// Describes the awaited token: its endpoint and the last failure.
fn token_of(client: &Client) -> String {
    let health = client.tokens().health();
    let last = health.last_error.as_ref();
    let last = last.map(|error| format!(" ({error})")).unwrap_or_default();
    format!("a token from {}{last}", health.endpoint)
}

/// Most bytes that wait for their end without a file.
const IN_MEMORY: usize = 8 << 20;

/// Longer than a token request, which takes ten seconds at most.
const SAVING: Duration = Duration::from_secs(15);
