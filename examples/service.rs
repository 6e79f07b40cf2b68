//! The service that an example calls.

use std::{env, error::Error};

use tds_sim::{Config, Ledger, Server};
use tower_tds::{Builder, Client, Credentials};

/// The service that the environment names, or else a simulated one that lives as long as this.
///
/// A program of your own writes [`Client::builder`] in its place.
#[derive(Debug)]
pub struct Service {
    auth_url: String,
    base_url: String,
    simulated: Option<Server>,
}

// === impl Service ===

impl Service {
    /// Reads `TDS_AUTH_URL` and `TDS_BASE_URL`, or starts the simulated service if there are none.
    ///
    /// # Errors
    /// If one of them is set alone, or there is no free port.
    pub async fn find() -> Result<Self, Box<dyn Error + Send + Sync>> {
        if env::var_os("TDS_AUTH_URL").is_some() || env::var_os("TDS_BASE_URL").is_some() {
            return Ok(Self {
                auth_url: setting("TDS_AUTH_URL")?,
                base_url: setting("TDS_BASE_URL")?.trim_end_matches('/').to_owned(),
                simulated: None,
            });
        }
        let server = Server::start(Config::default()).await?;
        Ok(Self {
            auth_url: server.auth_url().to_owned(),
            base_url: server.base_url().to_owned(),
            simulated: Some(server),
        })
    }

    /// Begins a client of it, with `TDS_CLIENT_ID` and `TDS_CLIENT_SECRET` unless it is simulated.
    ///
    /// # Errors
    /// If one of them is not set, or cannot be sent.
    pub fn client(&self) -> Result<Builder, Box<dyn Error + Send + Sync>> {
        let credentials = match &self.simulated {
            Some(server) => Credentials::new(server.client_id(), server.client_secret()),
            None => Credentials::new(setting("TDS_CLIENT_ID")?, setting("TDS_CLIENT_SECRET")?),
        }?;
        Ok(Client::builder(&self.auth_url, &self.base_url, credentials).loopback_http())
    }

    /// The address of `path` there.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}/{}", self.base_url, path.trim_start_matches('/'))
    }

    /// What it saw, if it is the simulated one.
    #[must_use]
    pub fn ledger(&self) -> Option<Ledger> {
        self.simulated.as_ref().map(Server::ledger)
    }
}

fn setting(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set: set it, or no TDS_ variable at all"))
}
