//! Settings: a flag overrides the environment, and the environment overrides `--env-file`.

use std::{
    env, fmt, fs, io,
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, Command};
use strsim::levenshtein;
use tokio::sync::SetOnce;
use tower_tds_fleet::Fleet;

use crate::{answer::Accept, exit::Failure, header::MONTH, output, stop::Stop, system};

/// Options of all jobs.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "the texts of --help")]
#[command(next_help_heading = "Options of all commands (with the setting's name)")]
pub(crate) struct Options {
    /// Base URL of the token server (TDS_AUTH_URL)
    #[arg(long, global = true, value_name = "URL")]
    auth_url: Option<String>,
    /// URL of the token endpoint itself (TDS_TOKEN_URL)
    #[arg(long, global = true, value_name = "URL")]
    token_url: Option<String>,
    /// Issuer that names the token endpoint (TDS_DISCOVER)
    #[arg(long, global = true, value_name = "ISSUER")]
    discover: Option<String>,
    /// Base URL of the data server (TDS_BASE_URL)
    #[arg(long, global = true, value_name = "URL")]
    base_url: Option<String>,
    /// Client ID of your key (TDS_CLIENT_ID)
    #[arg(long, global = true, value_name = "ID")]
    client_id: Option<String>,
    /// File with the secret (TDS_CLIENT_SECRET_FILE)
    #[arg(long, global = true, value_name = "FILE")]
    secret_file: Option<String>,
    /// Trust these root certificates too (TDS_CA_FILE)
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<String>,
    /// Use this proxy, not the environment's (TDS_PROXY)
    #[arg(long, global = true, value_name = "URL")]
    proxy: Option<String>,
    /// Read settings from the lines NAME=VALUE of a file
    #[arg(long, global = true, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Rate limit, repeatable [default: 50/1s] (TDS_RATE)
    #[arg(long, global = true, value_name = "N/TIME")]
    rate: Vec<String>,
    /// Connection limit [default: 60] (TDS_CONNECTIONS)
    #[arg(long, global = true, value_name = "N")]
    connections: Option<String>,
    /// Part of the limits to use [default: 1/1] (TDS_SHARE)
    #[arg(long, global = true, value_name = "A/B")]
    share: Option<String>,
    /// Redis for shared limits and token (TDS_FLEET_STORE)
    #[arg(long, global = true, value_name = "URL")]
    fleet: Option<String>,
    /// Name of the fleet in it [default: tds] (TDS_FLEET_NAME)
    #[arg(long, global = true, value_name = "NAME")]
    fleet_name: Option<String>,
    /// Folder for the shared token (TDS_STATE_DIR)
    #[arg(long, global = true, value_name = "FOLDER")]
    state: Option<String>,
    /// Types to accept; text/html for pages
    #[arg(long, global = true, value_name = "TYPES", default_value = "*/*", value_parser = Accept::parse)]
    accept: Accept,
    /// Take an empty response in place of data
    #[arg(long, global = true)]
    allow_empty: bool,
    /// Call a simulated service, which invents its data
    #[arg(long, global = true)]
    simulate: bool,
    /// Print nothing but failures
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log each step, as --log text:debug does
    #[arg(long, short, global = true, conflicts_with = "log")]
    verbose: bool,
    /// Log format and level, such as json:debug (TDS_LOG)
    #[arg(long, global = true, value_name = "FORMAT")]
    log: Option<String>,
}

/// Settings that have a value, with the source of each.
#[derive(Debug)]
pub(crate) struct Settings {
    all: Vec<Setting>,
    pub(crate) accept: Accept,
    pub(crate) simulate: bool,
    pub(crate) stop: Arc<Stop>,
    /// Set when the job joins its fleet.
    pub(crate) fleet: SetOnce<Fleet>,
}

#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// Source of a setting, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Flag,
    Environment,
    File,
    Default,
}

// === impl Options ===

impl Options {
    /// Finds the value of each setting in its strongest source.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let file = match &self.env_file {
            Some(path) => env_file(path)?,
            None => Vec::new(),
        };
        // The environment may have variables of other programs.
        let all = strangers().into_iter();
        let all = all.map(|name| ("the environment", name, 2));
        let in_file = file
            .iter()
            .map(|(name, _)| ("--env-file", name.clone(), usize::MAX));
        for (place, name, most) in in_file.chain(all) {
            if let Some((known, _)) = nearest(&name).filter(|(_, letters)| *letters <= most) {
                return Err(Failure::usage(format!(
                    "{place}: {name} is not a setting; the nearest is {known}"
                )));
            }
        }
        let rates = (!self.rate.is_empty()).then(|| self.rate.join(","));
        let text = |text: &str| Some(text.to_owned());
        let verbose = || self.verbose.then(|| "text:debug".to_owned());
        if self.quiet {
            output::be_quiet();
        }
        let mut all = Vec::new();
        for (name, flag, default) in [
            (AUTH_URL, self.auth_url.clone(), None),
            (TOKEN_URL, self.token_url.clone(), None),
            (DISCOVER, self.discover.clone(), None),
            (BASE_URL, self.base_url.clone(), None),
            (CLIENT_ID, self.client_id.clone(), None),
            (SECRET, None, None),
            (SECRET_FILE, self.secret_file.clone(), None),
            (CA_FILE, self.ca.clone(), None),
            (PROXY, self.proxy.clone(), None),
            (RATE, rates, text("50/1s")),
            (CONNECTIONS, self.connections.clone(), text("60")),
            (SHARE, self.share.clone(), text("1/1")),
            (FLEET_STORE, self.fleet.clone(), None),
            (FLEET_NAME, self.fleet_name.clone(), text("tds")),
            (STATE_DIR, self.state.clone(), system::state_folder()),
            (LOG, self.log.clone().or_else(verbose), None),
        ] {
            let in_file = file.iter().rev().find(|(known, _)| known == name);
            let in_file = in_file.map(|(_, value)| value.clone());
            let places = [
                (flag, Source::Flag),
                (variable(name)?, Source::Environment),
                (in_file, Source::File),
                (default, Source::Default),
            ];
            let mut found = places
                .into_iter()
                .filter_map(|(it, from)| Some((it?, from)));
            let Some((value, source)) = found.next() else {
                continue;
            };
            if source == Source::Flag && has_password(name, &value) {
                return Err(Failure::usage(format!(
                    "every user of this machine can read the password in a flag; set {name} instead"
                )));
            }
            all.push(Setting {
                name,
                value,
                source,
            });
        }
        Ok(Settings {
            accept: Accept {
                empty: self.allow_empty,
                ..self.accept.clone()
            },
            ..Settings::of(all, self.simulate)
        })
    }
}

// === impl Settings ===

impl Settings {
    pub(crate) fn of(all: Vec<Setting>, simulate: bool) -> Self {
        Self {
            all,
            accept: Accept::any(),
            simulate,
            stop: Arc::default(),
            fleet: SetOnce::new(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Setting> {
        self.all.iter().find(|setting| setting.name == name)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        Some(&*self.find(name)?.value)
    }

    /// Returns the failure for a setting, which is called as the user gave it: by its flag or its name.
    pub(crate) fn unusable(&self, name: &str, why: &dyn fmt::Display) -> Failure {
        let source = self.find(name).map(|setting| setting.source);
        let flag = flags().find(|(of, _)| of == name);
        let flag = flag.filter(|_| source == Some(Source::Flag));
        let called = flag.map_or_else(|| name.to_owned(), |(_, flag)| format!("--{flag}"));
        Failure::usage(format!("{called}: {why}"))
    }

    /// Returns the name, the value and the source of each setting, without a secret.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&str, String, &str)> {
        self.all.iter().map(|setting| {
            let value = match setting.name {
                SECRET => NOT_SHOWN.to_owned(),
                AUTH_URL | TOKEN_URL | DISCOVER | BASE_URL | PROXY | FLEET_STORE => {
                    address_of(&setting.value)
                }
                _ => setting.value.clone(),
            };
            let source = match setting.source {
                Source::Flag => "flag",
                Source::Environment => "environment",
                Source::File => "--env-file",
                Source::Default => "default",
            };
            (setting.name, value, source)
        })
    }
}

/// Returns the known setting nearest to an unknown name, and how many letters differ.
pub(crate) fn nearest(name: &str) -> Option<(String, usize)> {
    if !name.starts_with("TDS_") {
        return None;
    }
    let known = flags().map(|(known, _)| known).chain([SECRET.to_owned()]);
    let (distance, known) = known.map(|it| (levenshtein(name, &it), it)).min()?;
    (distance > 0).then_some((known, distance))
}

/// Returns each setting that has a flag, and the flag: help has the name in parentheses.
fn flags() -> impl Iterator<Item = (String, String)> {
    let options = Options::augment_args(Command::new(""));
    let options: Vec<_> = options.get_arguments().cloned().collect();
    options.into_iter().filter_map(|option| {
        let help = option.get_help()?.to_string();
        let (name, _) = help.split_once("(TDS_")?.1.split_once(')')?;
        Some((format!("TDS_{name}"), option.get_long()?.to_owned()))
    })
}

/// Returns the names in the environment that look like settings. Leaves out those that Kubernetes
/// injects for a service named `tds`.
pub(crate) fn strangers() -> Vec<String> {
    let is_injected = |name: &str| {
        let end = name.ends_with("_PORT");
        name.starts_with("TDS_PORT") || end || name.contains("_SERVICE_") || name.contains("_PORT_")
    };
    let names = env::vars_os().filter(|(_, value)| !value.is_empty());
    let names = names.filter_map(|(name, _)| name.into_string().ok());
    names
        .filter(|name| nearest(name).is_some() && !is_injected(name))
        .collect()
}

/// Reads an environment variable. An empty one counts as not set.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) => Ok((!value.trim().is_empty()).then_some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        // Leaves the value out of the message, because it may be the secret.
        Err(env::VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is not text"))),
    }
}

/// Reads a file of settings. If it contains a secret, its mode is checked as by [`read_secret`].
fn env_file(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let refused =
        |why: &dyn fmt::Display| Failure::usage(format!("--env-file {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refused(&error))?;
    let settings = lines(&text).map_err(|why| refused(&why))?;
    let is_secret = |name: &str, value: &str| name == SECRET || has_password(name, value);
    if settings.iter().any(|(name, value)| is_secret(name, value)) {
        read_secret(path).map_err(|error| refused(&error))?;
    }
    Ok(settings)
}

/// Whether an address has a password.
fn has_password(name: &str, value: &str) -> bool {
    let is_in_query = || value.contains("pass=") || value.contains("password=");
    [FLEET_STORE, PROXY].contains(&name) && (value.contains('@') || is_in_query())
}

/// Returns an address without its user and its query, which may hold a password or a key.
pub(crate) fn address_of(url: &str) -> String {
    let (address, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let (scheme, rest) = address.split_at(address.find("://").map_or(0, |at| at + 3));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // A password may contain any of the characters that end the authority.
    if path.contains('@') || query.contains('@') {
        return NOT_SHOWN.to_owned();
    }
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}{host}{path}")
}

/// Parses lines of `NAME=VALUE`. Removes quotes around a value, as shells and systemd do.
///
/// A comment behind a value is refused, because systemd and Docker would make it a part of the value,
/// and Compose would not.
pub(crate) fn lines(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut settings = Vec::new();
    let text = text.trim_start_matches('\u{feff}');
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let exported = line.strip_prefix("export");
        let exported = exported.filter(|rest| rest.starts_with([' ', '\t']));
        let line = exported.map_or(line, str::trim_start);
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("line {number}: write NAME=VALUE"));
        };
        let has_comment = [" #", "\t#"].iter().any(|comment| value.contains(comment));
        let value = value.trim();
        let quoted = ['"', '\''].iter().find_map(|quote| {
            let inner = value.strip_prefix(*quote)?;
            inner.strip_suffix(*quote)
        });
        if has_comment && quoted.is_none() && name.starts_with("TDS_") {
            let why = "quote the value, or move the comment to a line of its own";
            return Err(format!("line {number}: {why}"));
        }
        let value = quoted.unwrap_or(value);
        if !value.is_empty() {
            settings.push((name.trim().to_owned(), value.to_owned()));
        }
    }
    Ok(settings)
}

/// Reads a file with a secret. It is refused when others can read it, or when its group can write
/// it.
pub(crate) fn read_secret(path: &Path) -> io::Result<String> {
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o037 != 0 {
        return Err(io::Error::other(
            "its group may write it, or others may read or write it; chmod 440 it (in Docker the secret's `mode`, \
             in Kubernetes `defaultMode`)",
        ));
    }
    fs::read_to_string(path)
}

/// Parses the address of a listener.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let written = "write an IP address and a port: 127.0.0.1:8080, or [::1]:8080";
    text.parse().map_err(|_| written.to_owned())
}

/// Parses a count, which is at least one.
pub(crate) fn count(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "write a number from 1".to_owned())
}

/// Parses a duration: `500ms`, `15s`, `2m`, `1h`, `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    // Refuses more than a month: that is a mistake, and might overflow a clock.
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() && time <= MONTH => Ok(time),
        _ => Err(
            "write a number and a unit (ms, s, m, h or d), above 0 and at most a month: 500ms, 15s, 2m"
                .to_owned(),
        ),
    }
}

/// Parses a duration as [`duration`] does, or a plain `0`.
pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => duration(text).map_err(|advice| format!("{advice}, or 0")),
    }
}

const NOT_SHOWN: &str = "(not shown)";

pub(crate) const AUTH_URL: &str = "TDS_AUTH_URL";
pub(crate) const TOKEN_URL: &str = "TDS_TOKEN_URL";
pub(crate) const DISCOVER: &str = "TDS_DISCOVER";
pub(crate) const CA_FILE: &str = "TDS_CA_FILE";
pub(crate) const PROXY: &str = "TDS_PROXY";
pub(crate) const BASE_URL: &str = "TDS_BASE_URL";
pub(crate) const CLIENT_ID: &str = "TDS_CLIENT_ID";
pub(crate) const SECRET: &str = "TDS_CLIENT_SECRET";
pub(crate) const SECRET_FILE: &str = "TDS_CLIENT_SECRET_FILE";
pub(crate) const RATE: &str = "TDS_RATE";
pub(crate) const CONNECTIONS: &str = "TDS_CONNECTIONS";
pub(crate) const SHARE: &str = "TDS_SHARE";
pub(crate) const FLEET_STORE: &str = "TDS_FLEET_STORE";
pub(crate) const FLEET_NAME: &str = "TDS_FLEET_NAME";
pub(crate) const STATE_DIR: &str = "TDS_STATE_DIR";
pub(crate) const LOG: &str = "TDS_LOG";
