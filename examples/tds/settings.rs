//! Settings: which service a job calls, and with which key: from the environment, a file, or simulated.

use std::{
    collections::HashMap,
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tds_examples::{causes, warn};
use tds_sim::{Config, Server};
use tower_tds::{Builder, Client, Credentials, Provider};

use crate::{
    exit::Failure,
    fleet::{FleetOptions, Membership},
    state::State,
};

/// The options that all jobs have.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServiceOptions {
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "simulate",
        help = "Read the settings (TDS_AUTH_URL, TDS_BASE_URL, TDS_CLIENT_ID, and TDS_CLIENT_SECRET or \
                TDS_CLIENT_SECRET_FILE; TDS_FLEET) from this file of NAME=VALUE lines, and none from the \
                environment"
    )]
    env_file: Option<PathBuf>,
    /// Call a simulated service, even if settings name a real one
    #[arg(long)]
    simulate: bool,
    #[arg(
        long,
        value_name = "FOLDER",
        help = "Keep the token for other processes in this folder [default: TDS_STATE_DIR, or tds in \
                XDG_STATE_HOME or ~/.local/state]"
    )]
    state: Option<PathBuf>,
    #[command(flatten)]
    fleet: FleetOptions,
}

/// A service that was found, and the client that begins with it.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) builder: Builder,
    /// What processes with the same key share on this machine; none with the simulated service, which ends
    /// with this one, or where a fleet has it.
    pub(crate) state: Option<State>,
    pub(crate) fleet: Membership,
    /// Lives as long as the job.
    pub(crate) simulated: Option<Server>,
}

// === impl ServiceOptions ===

impl ServiceOptions {
    /// Reads the settings, or starts the simulated service and says so.
    pub(crate) async fn find(&self) -> Result<Service, Failure> {
        let mut settings = self.settings()?;
        let store = settings.remove(FLEET);
        // A file that sets a fleet alone is one with settings that are missing.
        let is_simulated = self.simulate || (settings.is_empty() && self.env_file.is_none());
        let fleet = self
            .fleet
            .join(store, if is_simulated { SIMULATED } else { "" })?;
        if is_simulated {
            return simulated(fleet).await;
        }
        let value = |name: &str| {
            let value = settings.get(name).cloned();
            value.ok_or_else(|| {
                Failure::usage(format!(
                    "{name} is not set: set TDS_AUTH_URL, TDS_BASE_URL, TDS_CLIENT_ID and TDS_CLIENT_SECRET \
                     (or TDS_CLIENT_SECRET_FILE), or none for the simulated service"
                ))
            })
        };
        let (auth_url, base_url) = (value("TDS_AUTH_URL")?, value("TDS_BASE_URL")?);
        let id = value("TDS_CLIENT_ID")?;
        let secret = settings.get("TDS_CLIENT_SECRET");
        let (provider, secret): (Provider, _) = match (
            secret,
            settings.get("TDS_CLIENT_SECRET_FILE"),
        ) {
            (Some(_), Some(_)) => {
                return Err(Failure::usage(
                    "TDS_CLIENT_SECRET and TDS_CLIENT_SECRET_FILE are both set: one would be ignored",
                ));
            }
            (None, Some(path)) => {
                // Now, and not by a retry of two minutes.
                let secret = secret_in(Path::new(path)).map_err(|error| {
                    Failure::usage(format!("TDS_CLIENT_SECRET_FILE {path}: {error}"))
                })?;
                let provider = Provider::file(&*id, path).readable_by_group();
                (provider, secret)
            }
            (_, None) => {
                let secret = value("TDS_CLIENT_SECRET")?;
                let credentials = Credentials::new(&*id, &*secret).map_err(|error| {
                    Failure::usage(format!(
                        "TDS_CLIENT_ID or TDS_CLIENT_SECRET is not usable: {}",
                        causes(&error)
                    ))
                })?;
                (credentials.into(), secret)
            }
        };
        let builder = Client::builder(&auth_url, &base_url, provider).loopback_http();
        let mut builder = fleet.share(builder, &secret);
        let state = if fleet.is_member() {
            None
        } else {
            State::open(self.state.clone(), &[&auth_url, &id])
        };
        if let Some(state) = &state {
            let store = state.tokens();
            builder = builder.tokens(|tokens| tokens.store(store));
        }
        Ok(Service {
            builder,
            state,
            fleet,
            simulated: None,
        })
    }

    /// What is set, by name: from one place, so that no id meets another key's secret.
    fn settings(&self) -> Result<HashMap<&'static str, String>, Failure> {
        let set =
            |name: &'static str, value: String| (!value.trim().is_empty()).then_some((name, value));
        let Some(path) = &self.env_file else {
            return NAMES
                .into_iter()
                .filter_map(|name| env::var_os(name).map(|value| (name, value)))
                .map(|(name, value)| {
                    // The value is in no message: it may be the secret.
                    let value = value.into_string();
                    value
                        .map(|value| set(name, value))
                        .map_err(|_| Failure::usage(format!("{name} is not text")))
                })
                .filter_map(Result::transpose)
                .collect();
        };
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        let found: HashMap<_, _> = lines(&text)
            .filter_map(|(name, value)| set(name, value))
            .collect();
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "{} sets none of {}",
                path.display(),
                NAMES.join(", ")
            )));
        }
        Ok(found)
    }
}

/// The settings in the lines of a file, as a shell or systemd reads them: `export` and quotes may stand there.
fn lines(text: &str) -> impl Iterator<Item = (&'static str, String)> + '_ {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let (name, value) = line
            .strip_prefix("export ")
            .unwrap_or(line)
            .split_once('=')?;
        let name = NAMES.into_iter().find(|known| *known == name.trim())?;
        let value = value.trim();
        let bare = ['"', '\''].into_iter().find_map(|quote| {
            let value = value.strip_prefix(quote)?;
            value.strip_suffix(quote)
        });
        Some((name, bare.unwrap_or(value).to_owned()))
    })
}

/// The secret that is mounted, as its provider will read it: each job would wait minutes for a file of no use.
fn secret_in(path: &Path) -> io::Result<String> {
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
    fs::read_to_string(path)
}

async fn simulated(fleet: Membership) -> Result<Service, Failure> {
    let server = Server::start(Config::default()).await;
    let server = server
        .map_err(|error| Failure::usage(format!("no simulated service: {}", causes(&error))))?;
    warn("tds: a simulated service answers; settings such as TDS_BASE_URL name the real one");
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let credentials = credentials.map_err(|error| Failure::usage(causes(&error)))?;
    let builder =
        Client::builder(server.auth_url(), server.base_url(), credentials).loopback_http();
    Ok(Service {
        builder: fleet.share(builder, server.client_secret()),
        state: None,
        fleet,
        simulated: Some(server),
    })
}

/// Where a job listens.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let written = "an address is a number and a port: 127.0.0.1:8080, or [::1]:8080";
    text.parse().map_err(|_| written.to_owned())
}

/// A time as people write it: `500ms`, `15s`, `2m`, `1h`.
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
    // What is longer than a month is a slip, and would overflow a clock somewhere.
    match time {
        Some(time @ 1..=2_678_400_000) => Ok(Duration::from_millis(time)),
        Some(0) => Err("a time is longer than 0: 500ms, 15s, 2m".to_owned()),
        _ => Err(
            "a time is a number and ms, s, m or h, of a month at most: 500ms, 15s, 2m".to_owned(),
        ),
    }
}

/// The store of a fleet, which names no service.
const FLEET: &str = "TDS_FLEET";

/// Behind the name of a fleet.
const SIMULATED: &str = "-simulated";

const NAMES: [&str; 6] = [
    "TDS_AUTH_URL",
    "TDS_BASE_URL",
    "TDS_CLIENT_ID",
    "TDS_CLIENT_SECRET",
    "TDS_CLIENT_SECRET_FILE",
    FLEET,
];
