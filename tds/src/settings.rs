//! Settings: a flag overrides the environment, and the environment overrides `--env-file`.

use std::{
    env, fmt, fs, io,
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tds_sim::{Config, Server};
use tower_tds::{Builder, Client, Credentials, Limits, Provider, Quota};

use crate::{
    exit::Failure,
    output::{causes, warn},
    state::{self, State},
};

/// The options that all jobs have.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service (the setting's name in brackets)")]
pub(crate) struct Options {
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "Server of the tokens [TDS_AUTH_URL]"
    )]
    auth_url: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "Server of the data [TDS_BASE_URL]"
    )]
    base_url: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "ID",
        help = "Client Id of the key [TDS_CLIENT_ID]"
    )]
    client_id: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "File with its secret [TDS_CLIENT_SECRET_FILE]"
    )]
    secret_file: Option<String>,
    /// Settings that are not in the environment
    #[arg(long, global = true, value_name = "FILE")]
    env_file: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        value_name = "N/TIME",
        help = "Limit of requests; several hold together [TDS_RATE]"
    )]
    rate: Vec<String>,
    #[arg(
        long,
        global = true,
        value_name = "N",
        help = "Limit of connections [TDS_CONNECTIONS]"
    )]
    connections: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "A/B",
        help = "Use this part of both limits, as 1/4 [TDS_SHARE]"
    )]
    share: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        help = "Keep the token here for others [TDS_STATE_DIR]"
    )]
    state: Option<String>,
    /// Call a simulated service; its data is invented
    #[arg(long, global = true)]
    simulate: bool,
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        help = "text or json, and a level: json:debug [TDS_LOG]"
    )]
    log: Option<String>,
}

/// The settings in use. Those that are not set are absent.
#[derive(Debug)]
pub(crate) struct Settings {
    all: Vec<Setting>,
    simulate: bool,
}

#[derive(Debug)]
struct Setting {
    name: &'static str,
    value: String,
    source: Source,
}

/// The place of a setting, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Flag,
    Environment,
    File,
    Default,
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

// === impl Options ===

impl Options {
    /// Finds each setting in its strongest place.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let file = match &self.env_file {
            Some(path) => env_file(path)?,
            None => Vec::new(),
        };
        let rates = (!self.rate.is_empty()).then(|| self.rate.join(","));
        let text = |text: &str| Some(text.to_owned());
        let all = [
            (AUTH_URL, self.auth_url.clone(), None),
            (BASE_URL, self.base_url.clone(), None),
            (CLIENT_ID, self.client_id.clone(), None),
            (SECRET, None, None),
            (SECRET_FILE, self.secret_file.clone(), None),
            (RATE, rates, text("50/1s")),
            (CONNECTIONS, self.connections.clone(), text("60")),
            (SHARE, self.share.clone(), text("1/1")),
            (STATE_DIR, self.state.clone(), state::usual()),
            (LOG, self.log.clone(), None),
        ];
        let found = all.into_iter().map(|(name, flag, default)| {
            let in_file = || file.iter().rev().find(|(known, _)| known == name);
            let (value, source) = match (flag, variable(name)?, in_file()) {
                (Some(value), ..) => (Some(value), Source::Flag),
                (None, Some(value), _) => (Some(value), Source::Environment),
                (None, None, Some((_, value))) => (Some(value.clone()), Source::File),
                (None, None, None) => (default, Source::Default),
            };
            Ok(value.map(|value| Setting {
                name,
                value,
                source,
            }))
        });
        let all = found.filter_map(Result::transpose);
        Ok(Settings {
            all: all.collect::<Result<_, Failure>>()?,
            simulate: self.simulate,
        })
    }
}

// === impl Settings ===

impl Settings {
    fn find(&self, name: &str) -> Option<&Setting> {
        self.all.iter().find(|setting| setting.name == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        Some(&*self.find(name)?.value)
    }

    /// The format and the level of the log, if there is to be one.
    pub(crate) fn log(&self) -> Option<&str> {
        self.value(LOG)
    }

    /// The limits of this process: its share of the rates and of the connections.
    fn limits(&self) -> Result<Limits, Failure> {
        let usage = |name, why| Failure::usage(format!("{name}: {why}"));
        let share = self.value(SHARE).unwrap_or_default();
        let (part, whole): (u32, u32) = share
            .split_once('/')
            .and_then(|(part, whole)| Some((part.parse().ok()?, whole.parse().ok()?)))
            .filter(|(part, whole)| (1..=*whole).contains(part))
            .ok_or_else(|| usage(SHARE, "write a part such as 1/4".to_owned()))?;
        let of = |name, all: NonZeroU32| {
            let own = u64::from(all.get()) * u64::from(part) / u64::from(whole);
            let own = u32::try_from(own).ok().and_then(NonZeroU32::new);
            own.ok_or_else(|| usage(name, format!("a share of {share} leaves none of {all}")))
        };
        let mut limits: Option<Limits> = None;
        for rate in self.value(RATE).unwrap_or_default().split(',') {
            let (requests, per) = quota(rate).ok_or_else(|| {
                usage(
                    RATE,
                    format!("{rate:?}: write requests and a time: 50/1s, 5/60s"),
                )
            })?;
            let quota = Quota::new(of(RATE, requests)?, per)
                .ok_or_else(|| usage(RATE, format!("{rate}: no limit can be kept over it")))?;
            limits = Some(match limits {
                Some(limits) => limits.also(quota),
                None => Limits::new(quota),
            });
        }
        let connections = self.value(CONNECTIONS).and_then(|text| text.parse().ok());
        let connections =
            connections.ok_or_else(|| usage(CONNECTIONS, "write a number from 1".to_owned()))?;
        let limits = limits.ok_or_else(|| usage(RATE, "it is empty".to_owned()))?;
        let connections = of(CONNECTIONS, connections)?;
        Ok(limits.connections(connections).in_flight(connections))
    }

    /// The service of a job that sends many requests.
    ///
    /// Its first interval may have been used by an earlier run. A minute of that is waited for, and
    /// an hour is not.
    pub(crate) async fn service(&self) -> Result<Service, Failure> {
        let limits = self.limits()?;
        let longest = limits.quotas().iter().map(Quota::per).max();
        let limits = match longest {
            Some(longest) if longest > Duration::from_secs(60) => limits,
            Some(_) | None => limits.drained(),
        };
        self.open(limits).await
    }

    /// The service of a job that sends one request.
    pub(crate) async fn service_for_one(&self) -> Result<Service, Failure> {
        self.open(self.limits()?).await
    }

    /// Checks the settings, or starts the simulated service.
    async fn open(&self, limits: Limits) -> Result<Service, Failure> {
        if self.simulate {
            let server = Server::start(Config::default()).await;
            let unusable = |why| Failure::usage(format!("no simulated service: {why}"));
            let server = server.map_err(|error| unusable(causes(&error)))?;
            warn("a simulated service answers; its data is invented");
            let key = Credentials::new(server.client_id(), server.client_secret());
            let key = key.map_err(|error| unusable(causes(&error)))?;
            let builder = Client::builder(server.auth_url(), server.base_url(), key);
            return Ok(Service {
                builder: builder.loopback_http().limits(limits),
                base_url: SIMULATED.to_owned(),
                state: None,
                simulated: Some(server),
            });
        }
        let secret = match (self.find(SECRET), self.find(SECRET_FILE)) {
            (Some(secret), Some(file)) if secret.source == file.source => {
                return Err(Failure::usage(format!(
                    "{SECRET} and {SECRET_FILE} are both set: one would be ignored"
                )));
            }
            (secret, file) => secret.into_iter().chain(file).min_by_key(|it| it.source),
        };
        let required = [
            (AUTH_URL, self.find(AUTH_URL)),
            (BASE_URL, self.find(BASE_URL)),
            (CLIENT_ID, self.find(CLIENT_ID)),
            ("TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE)", secret),
        ];
        let missing = required.iter().filter(|(_, setting)| setting.is_none());
        let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
        let [
            (_, Some(auth)),
            (_, Some(base)),
            (_, Some(id)),
            (_, Some(secret)),
        ] = required
        else {
            let are = if missing.len() > 1 { "are" } else { "is" };
            return Err(Failure::usage(format!(
                "{} {are} not set; --simulate calls a simulated service instead",
                missing.join(" and ")
            )));
        };
        let provider = if secret.name == SECRET_FILE {
            let path = &*secret.value;
            // Checked now, because a provider retries an unusable file for two minutes.
            check_secret(Path::new(path))
                .map_err(|error| Failure::usage(format!("{SECRET_FILE} {path}: {error}")))?;
            Provider::file(&*id.value, path)
        } else {
            let credentials = Credentials::new(&*id.value, &*secret.value).map_err(|error| {
                let why = causes(&error);
                Failure::usage(format!("{CLIENT_ID} or {SECRET} is not usable: {why}"))
            })?;
            credentials.into()
        };
        let state = State::open(self.value(STATE_DIR), &[&auth.value, &id.value], &limits);
        let builder = Client::builder(&auth.value, &base.value, provider).loopback_http();
        let mut builder = builder.limits(limits);
        if let Some(state) = &state {
            let store = state.tokens();
            builder = builder.tokens(|tokens| tokens.store(store));
        }
        Ok(Service {
            builder,
            base_url: base.value.clone(),
            state,
            simulated: None,
        })
    }
}

/// One setting a line, with its source and without a secret.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for setting in &self.all {
            let Setting {
                name,
                value,
                source,
            } = setting;
            let value = match (*name, value.rsplit_once('@')) {
                (SECRET, _) => "(not shown)",
                (AUTH_URL | BASE_URL, Some((_, host))) => host,
                _ => value,
            };
            let source = match source {
                Source::Flag => "flag",
                Source::Environment => "environment",
                Source::File => "--env-file",
                Source::Default => "default",
            };
            writeln!(f, "{name:<22} {value} ({source})")?;
        }
        Ok(())
    }
}

/// Reads an environment variable. An empty one counts as not set.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) => Ok((!value.trim().is_empty()).then_some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        // The value is in no message: it may be the secret.
        Err(env::VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is not text"))),
    }
}

/// Reads lines of `NAME=VALUE`. Quotes around a value are removed, as shells and systemd do.
fn env_file(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let refused =
        |why: &dyn fmt::Display| Failure::usage(format!("--env-file {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refused(&error))?;
    let mut settings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            return Err(refused(&format!("line {number}: write NAME=VALUE")));
        };
        let value = value.trim();
        let quoted = ['"', '\''].iter().find_map(|quote| {
            let inner = value.strip_prefix(*quote)?;
            inner.strip_suffix(*quote)
        });
        let value = quoted.unwrap_or(value);
        if !value.is_empty() {
            settings.push((name.trim().to_owned(), value.to_owned()));
        }
    }
    if settings.iter().any(|(name, _)| name == SECRET) {
        check_secret(path).map_err(|error| refused(&error))?;
    }
    Ok(settings)
}

/// Checks that a file with a secret is usable.
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

/// Parses a limit: `5/60s`, `50/s`, `1000/1h`, or `5/60` in seconds.
fn quota(text: &str) -> Option<(NonZeroU32, Duration)> {
    let (requests, per) = text.trim().split_once('/')?;
    let per = match per.chars().next()? {
        first if !first.is_ascii_digit() => format!("1{per}"),
        _ if per.ends_with(|last: char| last.is_ascii_digit()) => format!("{per}s"),
        _ => per.to_owned(),
    };
    Some((requests.parse().ok()?, duration(&per).ok()?))
}

/// Parses the address of a listener.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let written = "an address is a number and a port: 127.0.0.1:8080, or [::1]:8080";
    text.parse().map_err(|_| written.to_owned())
}

/// Parses a duration: `500ms`, `15s`, `2m`, `1h`, `1d`.
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
        "d" => Some(86_400_000),
        _ => None,
    };
    let time = number.parse::<u64>().ok().zip(milliseconds);
    let time = time.and_then(|(number, unit)| number.checked_mul(unit));
    // More than a month is a mistake, and might overflow a clock.
    match time {
        Some(time @ 1..=2_678_400_000) => Ok(Duration::from_millis(time)),
        _ => Err(
            "a time is a number above 0 and ms, s, m, h or d, of a month at most: 500ms, 15s, 2m"
                .to_owned(),
        ),
    }
}

const AUTH_URL: &str = "TDS_AUTH_URL";
const BASE_URL: &str = "TDS_BASE_URL";
const CLIENT_ID: &str = "TDS_CLIENT_ID";
const SECRET: &str = "TDS_CLIENT_SECRET";
const SECRET_FILE: &str = "TDS_CLIENT_SECRET_FILE";
const RATE: &str = "TDS_RATE";
const CONNECTIONS: &str = "TDS_CONNECTIONS";
const SHARE: &str = "TDS_SHARE";
const STATE_DIR: &str = "TDS_STATE_DIR";
const LOG: &str = "TDS_LOG";

/// Stands in for a base URL, because the port of a simulated service changes.
const SIMULATED: &str = "simulated";
