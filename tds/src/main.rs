//! The jobs that users of the service have, in one program: `tds --help` lists them.
//!
//! With `--simulate` each job calls a simulated service that it starts itself.

mod answer;
mod backend;
mod bulk;
mod cache;
mod check;
mod download;
mod ending;
mod exit;
mod fleet;
mod get;
mod list;
mod manifest;
mod outage;
mod output;
mod poll;
mod save;
mod settings;
mod state;
mod status;
mod stop;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};

use crate::{
    exit::{Exit, Failure},
    output::warn,
};

/// Data of the transport data service: one token, whole files, no refusals.
#[derive(Debug, Parser)]
#[command(
    name = "tds",
    version,
    term_width = 80,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = exit::TABLE
)]
struct Cli {
    #[command(flatten)]
    options: settings::Options,
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    Get(get::Get),
    Bulk(bulk::Bulk),
    Poll(poll::Poll),
    Backend(backend::Backend),
    Check(check::Check),
    #[command(subcommand)]
    Fleet(fleet::Fleet),
}

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            warn(&format!("no runtime: {error}"));
            return Exit::SomeFailed.into();
        }
    };
    let ended = runtime.block_on(run());
    // A pending host lookup does not delay the end.
    runtime.shutdown_timeout(AT_THE_END);
    ended
}

async fn run() -> ExitCode {
    let cli = Cli::parse();
    // The other jobs end in order by a signal.
    let ended = if let Job::Get(_) | Job::Check(_) | Job::Fleet(_) = cli.job {
        tokio::select! {
            ended = job(cli) => ended,
            signal = stop::asked_as_the_first() => return ExitCode::from(signal + 128),
        }
    } else {
        job(cli).await
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            warn(&failure.to_string());
            failure.exit.into()
        }
    }
}

async fn job(cli: Cli) -> Result<Exit, Failure> {
    let settings = cli.options.settings()?;
    if let Some(log) = settings.log() {
        output::start_log(log)?;
    }
    match cli.job {
        Job::Get(job) => get::run(job, &settings).await,
        Job::Bulk(job) => bulk::run(job, &settings).await,
        Job::Poll(job) => poll::run(job, &settings).await,
        Job::Backend(job) => backend::run(job, &settings).await,
        Job::Check(job) => check::run(job, &settings).await,
        Job::Fleet(job) => fleet::run(job).await,
    }
}

/// The time for work that cannot be stopped, such as the sync of a file.
const AT_THE_END: Duration = Duration::from_millis(500);
