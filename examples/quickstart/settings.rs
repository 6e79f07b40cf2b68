//! What to call: from the arguments and the environment, checked before anything starts.

use std::{env, fmt};

use clap::Parser;
use http::Uri;

/// Fetches a token, then data, inside the limits, and reports what the server saw.
///
/// Without settings the simulated service is started on loopback. To call another service set
/// `TDS_AUTH_URL`, `TDS_BASE_URL`, `TDS_CLIENT_ID` and `TDS_CLIENT_SECRET`, and give paths.
#[derive(Debug, Parser)]
#[command(name = "quickstart")]
struct Arguments {
    /// How the simulated service counts: fixed, log, log-all, counter, leaky:BURST, in-flight
    /// [default: log]
    #[arg(long)]
    rule: Option<tds_sim::Rule>,

    /// The seed of the simulated delays [default: 1]
    #[arg(long)]
    seed: Option<u64>,

    /// How many calls to make of the simulated service [default: 300]
    #[arg(long, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_CALLS))]
    calls: Option<u32>,

    /// The paths to get from the service that the environment names
    paths: Vec<String>,
}

/// What to call.
#[derive(Debug)]
pub(crate) enum Settings {
    Simulated(Simulated),
    Real(Real),
}

/// The simulated service, started for this run.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) rule: tds_sim::Rule,
    pub(crate) seed: u64,
    pub(crate) calls: u32,
}

/// A service that is there already.
#[derive(Debug)]
pub(crate) struct Real {
    pub(crate) auth_url: String,
    pub(crate) base_url: String,
    pub(crate) credentials: tower_tds::Credentials,
    pub(crate) targets: Vec<Uri>,
}

/// Why the settings cannot be used: one line that says what to change.
#[derive(Debug)]
pub(crate) struct Unusable(String);

// === impl Settings ===

impl Settings {
    /// Reads the arguments and the environment.
    ///
    /// # Errors
    /// One line for whatever cannot be used.
    pub(crate) fn read() -> Result<Self, Unusable> {
        let arguments = match Arguments::try_parse() {
            Ok(arguments) => arguments,
            // Help is an answer, not an error.
            Err(help) if !help.use_stderr() => help.exit(),
            Err(error) => return Err(Unusable(first_line(&error.to_string()))),
        };
        let values = NAMES.map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
        let [Some(auth_url), Some(base_url), Some(id), Some(secret)] = values else {
            let missing: Vec<_> = NAMES
                .iter()
                .zip(&values)
                .filter_map(|(name, value)| value.is_none().then_some(*name))
                .collect();
            return if missing.len() == NAMES.len() {
                Self::simulated(arguments)
            } else {
                let missing = missing.join(" and ");
                Err(Unusable(format!(
                    "{missing} not set: set all of {}, or none to run the simulated service",
                    NAMES.join(", ")
                )))
            };
        };
        Self::real(arguments, auth_url, base_url, &id, &secret)
    }

    fn simulated(arguments: Arguments) -> Result<Self, Unusable> {
        if let Some(path) = arguments.paths.first() {
            return Err(Unusable(format!(
                "the path {path} is for a real service: set {} as well",
                NAMES.join(", ")
            )));
        }
        Ok(Self::Simulated(Simulated {
            rule: arguments.rule.unwrap_or(tds_sim::Rule::SlidingLog),
            seed: arguments.seed.unwrap_or(1),
            calls: arguments.calls.unwrap_or(300),
        }))
    }

    fn real(
        arguments: Arguments,
        auth_url: String,
        base_url: String,
        id: &str,
        secret: &str,
    ) -> Result<Self, Unusable> {
        if arguments.rule.is_some() || arguments.seed.is_some() || arguments.calls.is_some() {
            return Err(Unusable(format!(
                "--rule, --seed and --calls are for the simulated service, and TDS_BASE_URL names \
                 {base_url}: give paths, or unset {}",
                NAMES.join(", ")
            )));
        }
        if arguments.paths.is_empty() {
            return Err(Unusable(format!(
                "no path to get from {base_url}: give at least one, such as /v1/live/bus"
            )));
        }
        let base = base_url.trim_end_matches('/');
        if !base
            .parse::<Uri>()
            .is_ok_and(|base| base.scheme().is_some())
        {
            return Err(Unusable(format!(
                "TDS_BASE_URL {base_url} is not usable: give https://host"
            )));
        }
        let targets = arguments.paths.iter().map(|path| target(base, path));
        let targets = targets.collect::<Result<_, _>>()?;
        let credentials = tower_tds::Credentials::new(id, secret)
            .map_err(|error| Unusable(format!("TDS_CLIENT_ID, TDS_CLIENT_SECRET: {error}")))?;
        Ok(Self::Real(Real {
            auth_url,
            base_url,
            credentials,
            targets,
        }))
    }
}

// === impl Unusable ===

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The address of `path` at the service.
fn target(base: &str, path: &str) -> Result<Uri, Unusable> {
    let unusable = |why| Unusable(format!("the path {path} is not usable: {why}"));
    if path.contains("://") {
        return Err(unusable("TDS_BASE_URL has the host, give what follows it"));
    }
    format!("{base}/{}", path.trim_start_matches('/'))
        .parse()
        .map_err(|_| unusable("write spaces and other special characters as %20 and so on"))
}

/// A parser's message with its usage lines replaced by where to find them.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    format!("{line}; see --help")
}

const NAMES: [&str; 4] = [
    "TDS_AUTH_URL",
    "TDS_BASE_URL",
    "TDS_CLIENT_ID",
    "TDS_CLIENT_SECRET",
];

/// Five and a half hours at fifty a second.
const MOST_CALLS: i64 = 1_000_000;
