//! Settings, from the arguments and the environment, checked before anything starts.

use std::fmt;

use clap::Parser;
use http::Uri;
use tds_examples::{NAMES, environment, target};

/// Fetches a token, then data, inside the limits, and reports what the server saw.
///
/// Without settings the simulated service is started on loopback. To call another service set
/// `TDS_AUTH_URL`, `TDS_BASE_URL`, `TDS_CLIENT_ID` and `TDS_CLIENT_SECRET`, and give paths.
#[derive(Debug, Parser)]
#[command(name = "quickstart", term_width = 80)]
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
        match environment().map_err(|usage| Unusable(usage.to_string()))? {
            Some(named) => Self::real(arguments, named),
            None => Self::simulated(arguments),
        }
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
        [auth_url, base_url, id, secret]: [String; 4],
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
        let base = base_url.parse::<Uri>();
        if !base.is_ok_and(|base| base.scheme().is_some()) {
            return Err(Unusable(format!(
                "TDS_BASE_URL {base_url} is not usable: give https://host"
            )));
        }
        let targets = arguments.paths.iter().map(|path| target(&base_url, path));
        let targets = targets.collect::<Result<_, _>>().map_err(Unusable)?;
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

/// Five and a half hours at fifty a second.
const MOST_CALLS: i64 = 1_000_000;
