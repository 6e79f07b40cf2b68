//! `tds check`: the settings in use, one token, one data call.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower_tds::Kind;

use crate::{
    answer::{Asked, PAUSES},
    ending::Trouble,
    exit::{Exit, Failure},
    list,
    output::{self, counted, rough},
    settings::{Settings, duration},
    wait::{patiently, response_of, token_of},
};

/// Print the settings, fetch one token, and make one data call
#[derive(Debug, Args)]
#[command(
    after_help = "Each setting is printed with its source: flag, environment, --env-file or default. The secret is not shown. The token is always a new one, to test the secret."
)]
pub(crate) struct Check {
    /// Path and query of the data call
    #[arg(default_value = "/", value_parser = list::target)]
    path: String,
    /// Print lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait for the token, and for the data
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    deadline: Duration,
}

pub(crate) async fn run(job: Check, settings: &Settings) -> Result<Exit, Failure> {
    let tell = |event: Value, text| output::tell(job.json, &event, text).map(drop);
    for (name, value, source) in settings.shown() {
        let text = format!("{name:<22} {value} ({source})\n");
        let event = json!({ "event": "setting", "name": name, "value": value, "source": source });
        tell(event, text)?;
    }
    let service = settings.service_for_one().await?;
    for (name, proxy) in &service.routes {
        let text = format!("proxy: {name} through {proxy}\n");
        let event = json!({ "event": "proxy", "name": name, "proxy": proxy });
        tell(event, text)?;
    }
    // Ignores the stored token, which proves nothing about the secret.
    let client = settings
        .client(service.builder.tokens(|tokens| tokens))
        .await?;
    if let Some(fleet) = settings.fleet.get() {
        let fleet = fleet.status();
        let members = counted(fleet.members.into(), "member");
        let (share, total) = (fleet.share.requests, fleet.total.requests);
        let text = format!("fleet: {members}, this one with {share} of {total} requests\n");
        let members = fleet.members;
        let event = json!({ "event": "fleet", "members": members, "share": share, "total": total });
        tell(event, text)?;
    }
    // If there is no token, the data call below returns the reason.
    let token = patiently(client.tokens().ready(), || token_of(&client));
    if let Ok(Ok(_)) = timeout(job.deadline, token).await {
        let life = client.tokens().health().life_left.unwrap_or_default();
        let text = format!("token: valid for {}\n", rough(life));
        tell(json!({ "event": "token", "seconds": life.as_secs() }), text)?;
    }
    let asked = Asked {
        target: &job.path,
        ..Asked::default()
    };
    let length = async {
        let answer = service.accept.get(&client, asked, job.deadline, &PAUSES);
        answer.await?.data()?.copy(async |_| Ok(())).await
    };
    let granted = client.status().limits.granted;
    match patiently(length, || response_of(&client, granted)).await {
        Ok(length) => {
            let bytes = counted(length, "byte");
            let text = format!("data:  {} has {bytes}\n", job.path);
            let event = json!({ "event": "data", "url": job.path, "bytes": length });
            tell(event, text)?;
        }
        // A 404 passes, because the default path need not exist.
        Err(Trouble::Service(error)) if error.kind() == Kind::NotFound && job.path == "/" => {
            let text = "data:  the service accepts the token; name a path to read data\n";
            let event = json!({ "event": "data", "url": job.path, "bytes": null });
            tell(event, text.to_owned())?;
        }
        Err(trouble) => return Err(trouble.failure(&job.path)),
    }
    Ok(Exit::Whole)
}
