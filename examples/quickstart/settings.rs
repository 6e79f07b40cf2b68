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
    #[arg(long, default_value_t = tds_sim::Rule::SlidingLog)]
    rule: tds_sim::Rule,

    /// The seed of the simulated delays
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many calls to make of the simulated service
    #[arg(long, default_value_t = 300)]
    calls: usize,

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
    pub(crate) calls: usize,
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
        Self::real(arguments.paths, auth_url, base_url, &id, &secret)
    }

    fn simulated(arguments: Arguments) -> Result<Self, Unusable> {
        if let Some(path) = arguments.paths.first() {
            return Err(Unusable(format!(
                "the path {path} is for a real service: set {} as well",
                NAMES.join(", ")
            )));
        }
        if arguments.calls == 0 {
            return Err(Unusable(String::from("--calls 0 leaves nothing to do")));
        }
        Ok(Self::Simulated(Simulated {
            rule: arguments.rule,
            seed: arguments.seed,
            calls: arguments.calls,
        }))
    }

    fn real(
        paths: Vec<String>,
        auth_url: String,
        base_url: String,
        id: &str,
        secret: &str,
    ) -> Result<Self, Unusable> {
        if paths.is_empty() {
            return Err(Unusable(format!(
                "no path to get from {base_url}: give at least one, such as /v1/live/bus"
            )));
        }
        let base = base_url.trim_end_matches('/');
        if let Err(error) = base.parse::<Uri>() {
            return Err(Unusable(format!(
                "TDS_BASE_URL {base_url} is not usable: {error}; give https://host"
            )));
        }
        let targets = paths
            .iter()
            .map(|path| {
                let path = path.trim_start_matches('/');
                format!("{base}/{path}")
                    .parse()
                    .map_err(|error| Unusable(format!("the path {path} is not usable: {error}")))
            })
            .collect::<Result<_, _>>()?;
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
