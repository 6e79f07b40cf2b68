//! Quickstart: a hundred tasks call the simulated service at the same time, within its limits.
//!
//! It starts the simulated service on loopback and reports what that service saw:
//!
//! ```text
//! cargo run --release --bin quickstart
//! ```

mod report;
mod settings;

use std::{
    error::Error,
    io::{Write, stderr, stdout},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tds_sim::Server;
use tokio::{signal::ctrl_c, task::JoinSet};
use tower_tds::{
    Client, Credentials,
    layers::limits::{Limits, Proof},
};

use crate::settings::{HELP, Settings};

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Settings::read() {
        Ok(Some(settings)) => run(settings).await.map_err(|error| error.to_string()),
        Ok(None) => {
            say(HELP);
            Ok(true)
        }
        Err(why) => Err(format!("{why}; see --help")),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            warn(&format!("quickstart: {why}"));
            ExitCode::from(2)
        }
    }
}

/// Starts the simulated service, calls it, and returns whether its ledger is clean.
async fn run(settings: Settings) -> Result<bool, Box<dyn Error>> {
    let mut config = tds_sim::Config::default();
    config.rule = settings.rule.parse()?;
    config.seed = settings.seed;
    // Delays are random, so fifty calls that are sent over a second may arrive together.
    config.faults.before_counting = "lognormal:5ms:100ms".parse()?;
    let server = Server::start(config).await?;
    let (base, rule) = (server.base_url(), settings.rule);
    say(&format!("simulated service at {base}, --rule {rule}\n"));

    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), base, credentials)
        // This is also right for a service that counts requests in flight.
        .limits(Limits::default().proof(Proof::End))
        .build()?;
    let failed = get_all(&client, settings.calls).await;
    let ledger = server.ledger();
    server.shutdown().await;
    let (text, is_clean) = report::report(&ledger, &failed, settings.calls);
    say(&text);
    Ok(is_clean)
}

/// Makes all calls with a hundred tasks, and returns the errors. After Ctrl-C no further call
/// begins.
async fn get_all(client: &Client, calls: u32) -> Vec<String> {
    // Relaxed is enough everywhere, because the counters order nothing else.
    let (next, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (client, next, done) = (client.clone(), Arc::clone(&next), Arc::clone(&done));
        tasks.spawn(async move {
            let mut failed = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= calls {
                    return failed;
                }
                if let Err(error) = get(&client, n).await {
                    failed.push(error.to_string());
                }
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if done.is_multiple_of(LINE_EVERY) || done == calls {
                    warn(&format!("{done} of {calls} calls done"));
                }
            }
        });
    }
    tokio::spawn(async move {
        if ctrl_c().await.is_ok() {
            next.store(calls, Ordering::Relaxed);
        }
    });
    tasks.join_all().await.concat()
}

/// Makes one call, and reads its body to the end.
async fn get(client: &Client, n: u32) -> Result<(), tower_tds::Error> {
    let response = client.get(format!("/v1/live/bus-{n}")).await?;
    response.bytes().await.map(drop)
}

/// Writes to the standard output. Errors are ignored, so that a reader that closes early, such as
/// `head`, does not change the exit code.
fn say(text: &str) {
    drop(stdout().write_all(text.as_bytes()));
}

fn warn(line: &str) {
    drop(writeln!(stderr(), "{line}"));
}

const TASKS: usize = 100;

/// Number of calls between two lines, which makes one line a second at the rate that the service
/// allows.
const LINE_EVERY: u32 = 50;
