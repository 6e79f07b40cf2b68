//! Settings of a program, from its environment and its arguments.

use std::{env, error::Error, fmt, process};

use http::Uri;

use crate::say;

/// What whoever starts a program has to write otherwise.
#[derive(Debug)]
pub struct Usage(String);

/// The URL of the token service and of the data service, the client's id and its secret; none of
/// them is set where the simulated service is wanted.
///
/// # Errors
/// If some are set and others are not.
pub fn environment() -> Result<Option<[String; 4]>, Usage> {
    // One that is empty is as good as none.
    let values = NAMES.map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    match values {
        [Some(auth_url), Some(base_url), Some(id), Some(secret)] => {
            Ok(Some([auth_url, base_url, id, secret]))
        }
        [None, None, None, None] => Ok(None),
        values => {
            let names = NAMES.iter().zip(&values);
            let missing = names.filter_map(|(name, value)| value.is_none().then_some(*name));
            Err(Usage(format!(
                "{} not set: set all of {}, or none for the simulated service",
                missing.collect::<Vec<_>>().join(" and "),
                NAMES.join(", ")
            )))
        }
    }
}

/// For a program that takes no argument. Says how it is used, and ends it, if that is asked for.
///
/// # Errors
/// How the program is used, if it is given any.
pub fn no_argument(usage: &str) -> Result<(), Usage> {
    let usage = format!("usage: {usage}");
    let mut arguments = env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (None, _) => Ok(()),
        (Some(help), None) if help == "-h" || help == "--help" => {
            // Help is an answer, not an error; who does not read it has no other use for it.
            drop(say(&format!("{usage}\n")));
            process::exit(0)
        }
        (Some(_), _) => Err(Usage(usage)),
    }
}

/// The address of `path` at `base`.
///
/// # Errors
/// If there is no such address: what to change.
pub fn target(base: &str, path: &str) -> Result<Uri, String> {
    let unusable = |why| format!("the path {path} is not usable: {why}");
    if path.contains("://") {
        return Err(unusable("TDS_BASE_URL has the host, give what follows it"));
    }
    let (base, path) = (base.trim_end_matches('/'), path.trim_start_matches('/'));
    format!("{base}/{path}")
        .parse()
        .map_err(|_| unusable("write spaces and other special characters as %20 and so on"))
}

// === impl Usage ===

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// The variables of the environment that name a service.
pub const NAMES: [&str; 4] = [
    "TDS_AUTH_URL",
    "TDS_BASE_URL",
    "TDS_CLIENT_ID",
    "TDS_CLIENT_SECRET",
];
