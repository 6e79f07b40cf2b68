//! The main job: a token, then data, inside the limits, with a hundred tasks that want it at once.
//!
//! Without settings it starts the simulated service on loopback and reports what that saw:
//!
//! ```text
//! cargo run --release --bin quickstart
//! ```
//!
//! With `TDS_AUTH_URL`, `TDS_BASE_URL`, `TDS_CLIENT_ID` and `TDS_CLIENT_SECRET` set it calls
//! that service, once for each path given:
//!
//! ```text
//! cargo run --release --bin quickstart -- /v1/live/bus /v1/live/metro
//! ```

mod calls;
mod progress;
mod report;
mod settings;

use std::{error::Error, process::ExitCode};

use http::Uri;
use tds_examples::{causes, say, warn};
use tokio::time::Instant;
use tower_tds::{Client, Credentials, Limits, Proof};

use crate::{
    progress::Progress,
    settings::{Real, Settings, Simulated},
};

#[tokio::main]
async fn main() -> ExitCode {
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(unusable) => return complain(&unusable.to_string()),
    };
    let outcome = match settings {
        Settings::Simulated(settings) => simulated(settings).await,
        Settings::Real(settings) => real(settings).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => complain(&causes(&*error)),
    }
}

/// Starts the simulated service, calls it, and reports by its ledger.
async fn simulated(settings: Simulated) -> Result<bool, Box<dyn Error>> {
    let mut config = tds_sim::Config::default();
    config.rule = settings.rule;
    config.seed = settings.seed;
    // Fifty calls sent over a second may arrive together.
    config.faults.before_counting = "lognormal:5ms:100ms".parse()?;
    let server = tds_sim::Server::start(config).await?;
    let (base, rule) = (server.base_url(), settings.rule);
    say(&format!(
        "simulated service at {base}, counting by {rule}\n"
    ))?;

    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let client = Client::builder(server.auth_url(), server.base_url(), credentials)
        .loopback_http()
        // Right for whatever way of counting was asked for, in-flight included.
        .limits(Limits::default().proof(Proof::End))
        .build()?;

    let targets = (0..settings.calls)
        .map(|n| format!("{}/v1/live/bus-{n}", server.base_url()).parse())
        .collect::<Result<Vec<Uri>, _>>()?;
    let progress = Progress::new(settings.calls.into());
    let calls = calls::get_all(&client, targets, &progress).await;
    progress.finish();
    let ledger = server.ledger();
    server.shutdown().await;
    let report = report::by_the_ledger(&ledger, &calls, settings.calls);
    say(&report.text)?;
    Ok(report.clean)
}

/// Calls the service that the environment names.
async fn real(settings: Real) -> Result<bool, Box<dyn Error>> {
    let client = Client::builder(&settings.auth_url, &settings.base_url, settings.credentials)
        .loopback_http()
        .build()?;
    let start = Instant::now();
    let progress = Progress::new(u64::try_from(settings.targets.len())?);
    let calls = calls::get_all(&client, settings.targets, &progress).await;
    progress.finish();
    let report = report::by_the_callers(&calls, start.elapsed());
    say(&report.text)?;
    Ok(report.clean)
}

/// Says why there is no run, and with which exit code that ends.
fn complain(why: &str) -> ExitCode {
    warn(&format!("quickstart: {why}"));
    ExitCode::from(2)
}
