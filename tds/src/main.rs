//! The jobs that users of the service have, in one program: `tds --help` lists them.
//!
//! With `--simulate` each job calls a simulated service that it starts itself.

mod access;
mod answer;
mod backend;
mod bulk;
mod cache;
mod download;
mod ending;
mod exit;
mod gateway;
mod get;
mod list;
mod manifest;
mod outage;
mod poll;
mod progress;
mod refusal;
mod report;
mod save;
mod say;
mod serve;
mod settings;
mod state;
mod status;
mod stop;
mod target;

use std::{process::ExitCode, time::Duration};

use crate::say::warn;
use clap::{Parser, Subcommand};

/// Data of the transport data service: one token, inside its limits, whole files or none.
#[derive(Debug, Parser)]
#[command(
    name = "tds",
    version,
    term_width = 80,
    arg_required_else_help = true,
    after_help = exit::TABLE
)]
struct Cli {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    Get(get::Get),
    Bulk(bulk::Bulk),
    Poll(poll::Poll),
    Backend(backend::Backend),
    Gateway(gateway::Gateway),
}

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            warn(&format!("tds: no runtime: {error}"));
            return exit::Exit::SomeFailed.into();
        }
    };
    let ended = runtime.block_on(run());
    // A pending host lookup does not delay the end.
    runtime.shutdown_timeout(AT_THE_END);
    ended
}

async fn run() -> ExitCode {
    let ended = match Cli::parse().job {
        Job::Get(job) => tokio::select! {
            ended = get::run(job) => ended,
            signal = stop::asked_as_the_first() => return ExitCode::from(signal + 128),
        },
        Job::Bulk(job) => bulk::run(job).await,
        Job::Poll(job) => poll::run(job).await,
        Job::Backend(job) => backend::run(job).await,
        Job::Gateway(job) => gateway::run(job).await,
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            warn(&format!("tds: {failure}"));
            failure.exit.into()
        }
    }
}

/// The time for work that cannot be stopped, such as the sync of a file.
const AT_THE_END: Duration = Duration::from_millis(500);
