//! The simulator as a program. It prints one line of JSON, then serves until a signal ends it.

use std::{io, process::ExitCode};

use clap::Parser as _;
use tds_sim::{Relay, Server};

mod cli;

fn main() -> ExitCode {
    let role = match cli::Cli::try_parse() {
        Ok(cli) => cli::Role::from(cli),
        Err(error) if !error.use_stderr() => {
            say(&mut io::stdout(), error.to_string().trim_end());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            say(&mut io::stderr(), &cli::refusal(&error));
            return ExitCode::from(BAD_SWITCH);
        }
    };
    let served = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))
        .and_then(|runtime| runtime.block_on(run(role)).map_err(|error| chain(&*error)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut io::stderr(), &format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs until a signal. Prints a line with addresses at the start, and one with totals at the end.
async fn run(role: cli::Role) -> Result<(), Error> {
    let stop = stop()?;
    let sums = match role {
        cli::Role::Service(config) => {
            let server = Server::start(*config).await?;
            say(&mut io::stdout(), &addresses(&server));
            stop.await;
            let ledger = server.ledger();
            server.shutdown().await;
            serde_json::to_string(&ledger.summary())
        }
        cli::Role::Relay(to, network) => {
            let relay = Relay::start(to, network).await?;
            let at = serde_json::json!({ "address": relay.address() });
            say(&mut io::stdout(), &at.to_string());
            stop.await;
            serde_json::to_string(&relay.counts())
        }
    };
    say(&mut io::stdout(), &sums.unwrap_or_default());
    Ok(())
}

/// Reason why the program cannot serve.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Addresses and credentials for a client, as one line of JSON.
fn addresses(server: &Server) -> String {
    let mut line = serde_json::json!({
        "auth_url": server.auth_url(),
        "base_url": server.base_url(),
        "admin_url": server.admin_url(),
        "client_id": server.client_id(),
        "client_secret": server.client_secret(),
    });
    if let (Some(file), Some(line)) = (server.ca_file(), line.as_object_mut()) {
        line.insert("ca_file".to_owned(), file.to_string_lossy().into());
    }
    line.to_string()
}

/// Returns a future that waits for SIGINT or SIGTERM. This call already installs the handlers,
/// because the reader of the first line may send a signal at once.
#[cfg(unix)]
fn stop() -> Result<impl Future<Output = ()>, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
fn stop() -> Result<impl Future<Output = ()>, Error> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// Formats an error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// Writes a line. Errors are ignored: a closed pipe must not stop the server.
fn say(out: &mut dyn io::Write, line: &str) {
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Exit code for invalid options.
const BAD_SWITCH: u8 = 2;
