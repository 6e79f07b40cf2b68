//! `tds check`: the settings in use, one token, one data call.

use std::time::Duration;

use clap::Args;
use tokio::time::timeout;
use tower_tds::Kind;

use crate::{
    ending::Trouble,
    exit::{Exit, Failure},
    list,
    output::{counted, print, rough},
    settings::{Settings, duration},
};

/// Print the settings in use, fetch one token, and make one data call
#[derive(Debug, Args)]
#[command(
    after_help = "Each setting has its source: flag, environment, --env-file or default. The secret is not shown. The token is always a new one."
)]
pub(crate) struct Check {
    /// Path and query of the data call
    #[arg(default_value = "/", value_parser = list::target)]
    path: String,
    /// Give up after this time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    deadline: Duration,
}

pub(crate) async fn run(job: Check, settings: &Settings) -> Result<Exit, Failure> {
    print(settings.to_string())?;
    let service = settings.service_for_one().await?;
    print(service.routes.to_string())?;
    // Without the stored token, which proves nothing about the secret.
    let client = settings
        .client(service.builder.tokens(|tokens| tokens))
        .await?;
    if let Some(fleet) = settings.fleet.get() {
        let fleet = fleet.status();
        let members = counted(fleet.members.into(), "member");
        let (share, total) = (fleet.share.requests, fleet.total.requests);
        print(format!(
            "fleet: {members}, this one with {share} of {total} requests\n"
        ))?;
    }
    // If there is no token, the call returns the reason.
    if let Ok(Ok(_)) = timeout(job.deadline, client.tokens().ready()).await {
        let life = client.tokens().health().life_left.unwrap_or_default();
        print(format!("token: valid for {}\n", rough(life)))?;
    }
    let data = settings.accept.get(&client, &job.path, job.deadline).await;
    let length = match data {
        Ok(data) => data.copy(async |_| Ok(())).await,
        Err(trouble) => Err(trouble),
    };
    match length {
        Ok(length) => {
            let bytes = counted(length, "byte");
            print(format!("data:  {} has {bytes}\n", job.path))?;
        }
        // The token was accepted. The default path need not exist.
        Err(Trouble::Service(error)) if error.kind() == Kind::NotFound && job.path == "/" => {
            print("data:  the service accepts the token; name a path to read data\n")?;
        }
        Err(trouble) => return Err(trouble.failure(&job.path)),
    }
    Ok(Exit::Whole)
}
