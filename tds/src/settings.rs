//! Settings: the service and the key, from the environment or simulated.

use std::{
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tds_sim::{Config, Server};
use tower_tds::{Builder, Client, Credentials, Limits, Provider};

use crate::{
    exit::Failure,
    say::{causes, warn},
    state::State,
};

/// The options that all jobs have.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Service",
    after_help = "The service and the key are in the environment: TDS_AUTH_URL, TDS_BASE_URL, TDS_CLIENT_ID, and \
                  TDS_CLIENT_SECRET or TDS_CLIENT_SECRET_FILE."
)]
pub(crate) struct ServiceOptions {
    /// Call a simulated service, whose data is invented, whatever the environment names
    #[arg(long)]
    simulate: bool,
    #[arg(
        long,
        value_name = "FOLDER",
        help = "Keep the token for other processes in this folder [default: TDS_STATE_DIR, or tds in \
                XDG_STATE_HOME or ~/.local/state]"
    )]
    state: Option<PathBuf>,
}

/// A service, and the builder of its client.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) builder: Builder,
    /// The base URL, or [`SIMULATED`].
    pub(crate) base_url: String,
    /// The state that processes with the same key share on this machine. `None` with the simulated
    /// service, which ends with this process.
    pub(crate) state: Option<State>,
    /// The simulated service, which lives as long as the job.
    pub(crate) simulated: Option<Server>,
}

// === impl ServiceOptions ===

impl ServiceOptions {
    /// Reads the settings, or starts the simulated service.
    pub(crate) async fn find(&self) -> Result<Service, Failure> {
        if self.simulate {
            return simulated().await;
        }
        let auth_url = setting("TDS_AUTH_URL")?;
        let base_url = setting("TDS_BASE_URL")?;
        let id = setting("TDS_CLIENT_ID")?;
        let secret = setting("TDS_CLIENT_SECRET")?;
        let file = setting("TDS_CLIENT_SECRET_FILE")?;
        if secret.is_some() && file.is_some() {
            return Err(Failure::usage(
                "TDS_CLIENT_SECRET and TDS_CLIENT_SECRET_FILE are both set: one would be ignored",
            ));
        }
        let (Some(auth_url), Some(base_url), Some(id), Some(_)) =
            (&auth_url, &base_url, &id, secret.as_ref().or(file.as_ref()))
        else {
            let settings = [
                ("TDS_AUTH_URL", auth_url.is_some()),
                ("TDS_BASE_URL", base_url.is_some()),
                ("TDS_CLIENT_ID", id.is_some()),
                (
                    "TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE)",
                    secret.or(file).is_some(),
                ),
            ];
            let missing = settings.iter().filter(|(_, is_set)| !is_set);
            let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
            let are = if missing.len() > 1 { "are" } else { "is" };
            return Err(Failure::usage(format!(
                "{} {are} not set; --simulate calls a simulated service instead",
                missing.join(" and ")
            )));
        };
        let provider = match (&secret, &file) {
            (_, Some(path)) => {
                // Checked now, because a provider retries an unusable file for two minutes.
                check_secret(Path::new(path)).map_err(|error| {
                    Failure::usage(format!("TDS_CLIENT_SECRET_FILE {path}: {error}"))
                })?;
                Provider::file(&**id, path).readable_by_group()
            }
            (secret, None) => {
                let secret = secret.as_deref().unwrap_or_default();
                let credentials = Credentials::new(&**id, secret).map_err(|error| {
                    Failure::usage(format!(
                        "TDS_CLIENT_ID or TDS_CLIENT_SECRET is not usable: {}",
                        causes(&error)
                    ))
                })?;
                credentials.into()
            }
        };
        let builder = Client::builder(auth_url, base_url, provider).loopback_http();
        let mut builder = builder.limits(Limits::default().drained());
        let state = State::open(self.state.clone(), &[auth_url, id]);
        if let Some(state) = &state {
            let store = state.tokens();
            builder = builder.tokens(|tokens| tokens.store(store));
        }
        Ok(Service {
            builder,
            base_url: base_url.clone(),
            state,
            simulated: None,
        })
    }
}

/// Reads an environment variable. An empty one counts as not set.
fn setting(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) => Ok((!value.trim().is_empty()).then_some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        // The value is in no message: it may be the secret.
        Err(env::VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is not text"))),
    }
}

/// Checks that a mounted secret is usable.
fn check_secret(path: &Path) -> io::Result<()> {
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o037 != 0 {
        return Err(io::Error::other(
            "others than its owner and its group may read or write it; chmod 440 it (in Docker the secret's `mode`, \
             in Kubernetes `defaultMode`)",
        ));
    }
    fs::File::open(path).map(drop)
}

async fn simulated() -> Result<Service, Failure> {
    let server = Server::start(Config::default()).await;
    let server = server
        .map_err(|error| Failure::usage(format!("no simulated service: {}", causes(&error))))?;
    warn("tds: a simulated service answers; its data is invented");
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let credentials = credentials.map_err(|error| Failure::usage(causes(&error)))?;
    let builder =
        Client::builder(server.auth_url(), server.base_url(), credentials).loopback_http();
    Ok(Service {
        builder: builder.limits(Limits::default().drained()),
        base_url: SIMULATED.to_owned(),
        state: None,
        simulated: Some(server),
    })
}

/// Parses the address of a listener.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let written = "an address is a number and a port: 127.0.0.1:8080, or [::1]:8080";
    text.parse().map_err(|_| written.to_owned())
}

/// Parses a duration: `500ms`, `15s`, `2m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let time = number.parse::<u64>().ok().zip(milliseconds);
    let time = time.and_then(|(number, unit)| number.checked_mul(unit));
    // More than a month is a mistake, and might overflow a clock.
    match time {
        Some(time @ 1..=2_678_400_000) => Ok(Duration::from_millis(time)),
        Some(0) => Err("a time is longer than 0: 500ms, 15s, 2m".to_owned()),
        _ => Err(
            "a time is a number and ms, s, m or h, of a month at most: 500ms, 15s, 2m".to_owned(),
        ),
    }
}

/// Stands in for a base URL, because the port of a simulated service changes.
const SIMULATED: &str = "simulated";
