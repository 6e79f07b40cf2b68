//! The service that an example calls.

use std::{error::Error, fmt};

use http::Uri;
use tds_sim::{Config, Ledger, Server};
use tower_tds::{Builder, Client, Credentials};

use crate::{NAMES, environment, target, warn};

/// The service that the environment names, or else a simulated one that lives as long as this.
///
/// A program of your own writes [`Client::builder`] in its place.
pub struct Service {
    auth_url: String,
    base_url: String,
    id: String,
    secret: String,
    simulated: Option<Server>,
}

// === impl Service ===

impl Service {
    /// Reads the environment, or starts the simulated service, and says so, if nothing is set.
    ///
    /// # Errors
    /// If only a part is set, or there is no free port.
    pub async fn find() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let (values, simulated) = if let Some(values) = environment()? {
            (values, None)
        } else {
            let names = NAMES.join(", ");
            warn(&format!(
                "this calls a simulated service; for another set {names}"
            ));
            let server = Server::start(Config::default()).await?;
            let values = [
                server.auth_url(),
                server.base_url(),
                server.client_id(),
                server.client_secret(),
            ];
            (values.map(str::to_owned), Some(server))
        };
        let [auth_url, base_url, id, secret] = values;
        Ok(Self {
            auth_url,
            base_url,
            id,
            secret,
            simulated,
        })
    }

    /// Begins a client of it.
    ///
    /// # Errors
    /// If the id or the secret cannot be sent.
    pub fn client(&self) -> Result<Builder, Box<dyn Error + Send + Sync>> {
        let credentials = Credentials::new(&*self.id, &*self.secret)?;
        Ok(Client::builder(&self.auth_url, &self.base_url, credentials).loopback_http())
    }

    /// The address of `path` there.
    ///
    /// # Errors
    /// If it is no path.
    pub fn url(&self, path: &str) -> Result<Uri, String> {
        target(&self.base_url, path)
    }

    /// What it saw, if it is the simulated one.
    #[must_use]
    pub fn ledger(&self) -> Option<Ledger> {
        self.simulated.as_ref().map(Server::ledger)
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}
