//! Credentials from the environment.

use std::{env, future::ready, sync::Arc, time::Duration};

use zeroize::Zeroizing;

use super::source::{Provided, Providing, Source};
use crate::Credentials;

/// The names of two variables.
#[derive(Debug)]
pub(super) struct Env {
    client_id: String,
    client_secret: String,
}

// === impl Env ===

impl Env {
    pub(super) fn new(client_id: String, client_secret: String) -> Self {
        Self {
            client_id,
            client_secret,
        }
    }

    fn read(&self) -> Provided {
        let client_id = variable(&self.client_id)?;
        // The environment keeps its own copy, but there is no need for a second one.
        let client_secret = Zeroizing::new(variable(&self.client_secret)?);
        Ok(Arc::new(Credentials::new(
            client_id,
            client_secret.as_str(),
        )?))
    }
}

impl Source for Env {
    fn provide(&self) -> Providing {
        Box::pin(ready(self.read()))
    }

    fn watch(&self) -> Option<Duration> {
        Some(WATCH)
    }
}

/// `VarError` quotes a value that is not Unicode, and that value may be the secret.
fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| match error {
        env::VarError::NotPresent => format!("the environment variable {name} is not set"),
        env::VarError::NotUnicode(_) => format!("the environment variable {name} is no Unicode"),
    })
}

/// A new secret is tried within a second of its being set.
const WATCH: Duration = Duration::from_millis(500);
