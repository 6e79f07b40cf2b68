//! Jobs that use the service, in one program: `tds --help` lists them.
//!
//! With `--simulate` each job calls a simulated service that it starts itself.

mod accept;
mod access;
mod answer;
mod backend;
mod breaker;
mod bulk;
mod cache;
mod check;
mod download;
mod ending;
mod exit;
mod fleet;
mod freshness;
mod get;
mod header;
mod health;
mod known;
mod list;
mod lock;
mod manifest;
mod outage;
mod output;
mod page;
mod plan;
mod poll;
mod progress;
mod proxy;
mod refusal;
mod representation;
mod save;
mod service;
mod settings;
mod state;
mod status;
mod stop;
mod system;
mod wait;

use std::{
    io::{self, Write as _, stderr},
    iter, mem,
    pin::pin,
    process::{self, ExitCode},
    time::Duration,
};

use clap::{
    Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind,
};
use clap_complete::Shell;
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    fleet::Fleet,
    output::warn,
    settings::{FLEET_STORE, LOG, Settings},
};

/// Get data from the transport data service: whole files, within its limits.
#[derive(Debug, Parser)]
#[command(
    name = "tds",
    version,
    term_width = 80,
    arg_required_else_help = true,
    help_template = "{about}\n\n{all-args}{after-help}",
    after_help = exit::TABLE
)]
struct Cli {
    #[command(flatten)]
    options: settings::Options,
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    #[command(flatten)]
    Job(Job),
    /// Print completions for a shell
    Completions {
        /// Shell to print them for
        shell: Shell,
    },
    /// Print the manual pages
    Man,
}

#[derive(Debug, Subcommand)]
enum Job {
    Get(get::Get),
    Bulk(bulk::Bulk),
    Poll(poll::Poll),
    Backend(backend::Backend),
    Check(check::Check),
    Health(health::Health),
    #[command(subcommand)]
    Fleet(Fleet),
}

fn main() -> ExitCode {
    let no_runtime = |error| Failure::new(Exit::SomeFailed, format!("no runtime: {error}"));
    let runtime = tokio::runtime::Runtime::new().map_err(no_runtime);
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(run());
        // A host lookup that is still pending does not delay the end.
        runtime.shutdown_timeout(AT_THE_END);
        ended
    });
    let exit = ended.unwrap_or_else(|failure| {
        warn(&failure.to_string());
        failure.exit
    });
    exit.code().into()
}

async fn run() -> Result<Exit, Failure> {
    let parsed = helpful(Cli::command()).try_get_matches();
    let parsed = parsed.and_then(|mut parsed| Cli::from_arg_matches_mut(&mut parsed));
    let cli = parsed.map_err(|error| refused(&error))?;
    let job = match cli.act {
        Act::Job(job) => job,
        Act::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tds", &mut script);
            return output::print(script).map(|_| Exit::Whole);
        }
        Act::Man => {
            let pages = manual().map_err(|error| Failure::usage(error.to_string()))?;
            return output::print(pages).map(|_| Exit::Whole);
        }
    };
    let settings = cli.options.settings()?;
    let is_data = matches!(job, Job::Get(_));
    let is_json = match &job {
        Job::Get(job) => job.json,
        Job::Poll(job) => job.json,
        Job::Check(job) => job.json,
        // The totals of `bulk` are its end event; the others have no JSON output.
        Job::Bulk(_) | Job::Backend(_) | Job::Health(_) | Job::Fleet(_) => false,
    };
    let ended = supervised(job, &settings).await;
    settings.leave().await;
    if !is_json {
        return ended;
    }
    let (exit, kind, error) = match ended {
        Ok(exit) => (exit, None, None),
        Err(failure) => (failure.exit, failure.kind, Some(failure.to_string())),
    };
    let end = json!({ "event": "end", "exit": exit.code(), "kind": kind, "error": error });
    // The standard output of `get` is for data.
    match is_data {
        true => drop(writeln!(stderr(), "{end}")),
        false => drop(output::print(format!("{end}\n"))?),
    }
    Ok(exit)
}

/// Returns the manual pages of the program and of its jobs, one after the other.
fn manual() -> io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let mut text = Vec::new();
    let jobs = command.get_subcommands();
    let jobs = jobs.filter(|job| job.get_name() != "help");
    for page in iter::once(&command).chain(jobs) {
        clap_mangen::Man::new(page.clone()).render(&mut text)?;
    }
    Ok(text)
}

/// Fits each help page on a screen: only the first page shows the options of all commands.
fn helpful(mut command: Command) -> Command {
    // Hands the global options to the jobs.
    command.build();
    for job in command.get_subcommands_mut() {
        let after = job.get_after_help().map(|after| format!("{after}\n\n"));
        let after = after.unwrap_or_default() + "For the options of all commands, see tds --help.";
        let is_help = job.get_name() == "help";
        *job = mem::take(job)
            .hide(is_help)
            .after_help(after)
            .mut_args(|option| {
                let is_of_all = option.is_global_set() && option.get_id() != "allow_empty";
                // The error of a negative number then names its option.
                let mut names = option.get_value_names().unwrap_or_default().iter();
                let is_number = names.any(|name| NUMBERS.contains(&name.as_str()));
                option.hide(is_of_all).allow_hyphen_values(is_number)
            });
    }
    command.mut_args(|option| {
        let is_rare = IN_THE_MANUAL.contains(&option.get_id().as_str());
        option.hide(is_rare)
    })
}

/// Prints a help page and ends the program, or returns a line about the wrong argument.
fn refused(error: &clap::Error) -> Failure {
    let kind = error.kind();
    if !error.use_stderr() || kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let line = lines.join(" ");
    let line = line.trim_start_matches("error: ");
    Failure::usage(format!("{line}; see --help"))
}

/// Runs a job until it ends, by itself or by a signal.
async fn supervised(job: Job, settings: &Settings) -> Result<Exit, Failure> {
    let is_short = matches!(
        job,
        Job::Get(_) | Job::Check(_) | Job::Health(_) | Job::Fleet(_)
    );
    // A signal ends a short job by itself. Two need a handler: the first process of a container,
    // which the system does not end by default, and a member of a fleet, which has to leave it.
    let has_handler = !is_short || process::id() == 1 || settings.find(FLEET_STORE).is_some();
    let mut job = pin!(run_job(job, settings));
    tokio::select! {
        ended = &mut job => return ended,
        signal = settings.stop.listen(), if has_handler => {
            if is_short {
                return Ok(Exit::Signal(signal));
            }
        }
    }
    // Long jobs finish what they have begun.
    job.await
}

async fn run_job(job: Job, settings: &Settings) -> Result<Exit, Failure> {
    if let Some(log) = settings.value(LOG) {
        output::start_log(log).map_err(|why| settings.unusable(LOG, &why))?;
    }
    let strangers = settings::strangers();
    if !strangers.is_empty() {
        let names = strangers.join(", ");
        warn(&format!("not a setting, so it has no effect: {names}"));
    }
    match job {
        Job::Get(job) => get::run(job, settings).await,
        Job::Bulk(job) => bulk::run(job, settings).await,
        Job::Poll(job) => poll::run(job, settings).await,
        Job::Backend(job) => backend::run(job, settings).await,
        Job::Check(job) => check::run(job, settings).await,
        Job::Health(job) => job.run().await,
        Job::Fleet(Fleet::Status) => fleet::run(settings).await,
    }
}

/// Names of values that begin with a number.
const NUMBERS: [&str; 4] = ["A/B", "N", "N/TIME", "TIME"];

/// Options that few people need, or only with some jobs: this page does not show them.
const IN_THE_MANUAL: [&str; 5] = ["allow_empty", "fleet_name", "state", "help", "version"];

/// How long the end waits for work that cannot be stopped, such as the sync of a file.
const AT_THE_END: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
