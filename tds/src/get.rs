//! `tds get`: one response, for scripts and cron.

use std::{
    fs,
    io::{Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tempfile::SpooledTempFile;
use tokio::time::{Instant, timeout};

use crate::{
    answer::{Asked, Data, PAUSES},
    ending::Trouble,
    exit::{Exit, Failure},
    list, output, save,
    settings::{Settings, duration},
    wait::{patiently, response_of, token_of},
};

/// Fetch one response, and print it only if it is complete
#[derive(Debug, Args)]
#[command(
    after_help = "The token is saved for the next run. Runs that start at the same moment take turns, so that together they keep within the limits."
)]
pub(crate) struct Get {
    /// Path and query, sent byte for byte, such as '/v1/live/bus?$top=5'
    #[arg(value_parser = list::target)]
    path: String,
    /// Write to this file, and replace it only with a complete response
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// At the end, print the exit code and the error to stderr, as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How long the whole job may take
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    deadline: Duration,
}

pub(crate) async fn run(job: Get, settings: &Settings) -> Result<Exit, Failure> {
    save::check("--out", job.out.as_deref()).await?;
    let service = settings.service_for_one().await?;
    let begun = Instant::now();
    let left = || job.deadline.saturating_sub(begun.elapsed());
    let late = |what: String| {
        let why = format!("the deadline passed while waiting for {what}; data request not sent");
        Failure::new(Exit::Unreachable, why)
    };
    let client = timeout(left(), settings.client(service.builder)).await;
    let store = || settings.fleet.get().and_then(|fleet| fleet.status().fault);
    let fault = || store().map(|fault| format!(" ({})", settings.failure(&fault)));
    let fault = || fault().unwrap_or_default();
    let client =
        client.map_err(|_| late(format!("a share of the fleet's limits{}", fault())))??;
    // Waits for the token before the turn, because processes that wait for the same token would all
    // send at once when it comes.
    let token = patiently(client.tokens().ready(), || token_of(&client));
    let token = timeout(left(), token).await;
    drop(token.map_err(|_| late(token_of(&client)))?);
    let there = job.out.as_ref().and_then(|out| fs::metadata(out).ok());
    let asked = Asked {
        target: &job.path,
        replaces: there.is_some_and(|there| there.len() > 0),
        file: job.out.as_deref(),
        ..Asked::default()
    };
    let written = async {
        let answer = service.accept.get(&client, asked, left(), &PAUSES).await;
        // Waits until a new token is saved for the next run. Since it is saved before its use, this
        // usually ends at once.
        drop(timeout(left().min(SAVING), client.tokens().idle()).await);
        write(answer?.data()?, job.out.as_deref()).await
    };
    let granted = client.status().limits.granted;
    let written = patiently(written, || response_of(&client, granted)).await;
    drop(service.simulated);
    written.map_err(|trouble| trouble.failure(&job.path))?;
    Ok(Exit::Whole)
}

/// Writes the data only once all of it is there. Until then it is in memory or in an unnamed file,
/// or in the part of `path`.
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

/// Most bytes of an incomplete body in memory, before a file takes them.
const IN_MEMORY: usize = 8 << 20;

/// Longer than a token request, which takes ten seconds at most.
const SAVING: Duration = Duration::from_secs(15);
