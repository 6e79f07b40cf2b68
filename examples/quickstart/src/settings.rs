//! Settings of the quickstart, read from its arguments.

use std::{env, str::FromStr};

/// Settings of one run.
#[derive(Debug)]
pub(crate) struct Settings {
    /// How the service counts, as it is typed.
    pub(crate) rule: String,
    pub(crate) seed: u64,
    pub(crate) calls: u32,
}

// === impl Settings ===

impl Settings {
    /// Reads the arguments. Returns `None` if they request help.
    ///
    /// # Errors
    /// Returns one line about the argument that cannot be used.
    pub(crate) fn read() -> Result<Option<Self>, String> {
        let mut settings = Self {
            rule: String::from("log"),
            seed: 1,
            calls: 300,
        };
        let mut arguments = env::args_os().skip(1);
        while let Some(name) = arguments.next() {
            let name = name.to_string_lossy();
            let mut value = || arguments.next().and_then(|value| value.into_string().ok());
            match &*name {
                "-h" | "--help" => return Ok(None),
                "--rule" => settings.rule = parse(&name, value(), RULES)?,
                "--seed" => settings.seed = parse(&name, value(), "a whole number")?,
                "--calls" => {
                    settings.calls = parse(&name, value(), CALLS)?;
                    if !(1..=1_000_000).contains(&settings.calls) {
                        return Err(format!("--calls takes {CALLS}"));
                    }
                }
                _ => return Err(format!("{name} is not an option")),
            }
        }
        Ok(Some(settings))
    }
}

fn parse<T: FromStr>(name: &str, value: Option<String>, takes: &str) -> Result<T, String> {
    let value = value.and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("{name} takes {takes}"))
}

pub(crate) const HELP: &str = "\
Calls a simulated service within its limits, and reports what the service saw.

Usage: quickstart [--rule RULE] [--seed N] [--calls N]

  --rule RULE  how the simulated service counts: fixed, log, log-all, counter,
               leaky:BURST or in-flight [default: log]
  --seed N     the seed of the simulated delays [default: 1]
  --calls N    how many calls to make [default: 300]
";

const RULES: &str = "fixed, log, log-all, counter, leaky:BURST or in-flight";

/// Most calls of a run. A million take five and a half hours at fifty a second.
const CALLS: &str = "a number from 1 to 1000000";
