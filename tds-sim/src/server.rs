//! The simulator on three sockets of the loopback interface.

use std::{fmt, ops::Deref, time::Duration};

use tokio::{sync::watch, task::JoinSet};

#[cfg(feature = "tls")]
use crate::server::tls::Authority;
use crate::{
    config::Config,
    error::Error,
    server::listener::{Door, Listener, Security},
    sim::Sim,
};

mod admin;
mod listener;
mod page;
mod stream;
#[cfg(feature = "tls")]
mod tls;

/// The simulator on sockets: one for tokens, one for data, one to control it.
///
/// # Cancel safety
/// Dropping it closes all connections at once. [`shutdown`](Self::shutdown) first lets answers in
/// progress end.
///
/// # Examples
/// ```
/// use tds_sim::{Config, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tds_sim::Error> {
/// let server = Server::start(Config::default()).await?;
/// assert!(server.base_url().starts_with("http://127.0.0.1:"));
/// assert_eq!(server.ledger().summary().data_calls, 0);
/// server.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    sim: Sim,
    urls: Urls,
    #[cfg(feature = "tls")]
    authority: Option<Authority>,
    stop: watch::Sender<bool>,
    listeners: JoinSet<()>,
}

/// The URLs of the three listeners.
#[derive(Debug)]
struct Urls {
    auth: String,
    data: String,
    admin: String,
}

// === impl Server ===

impl Server {
    /// Starts the three listeners, on free ports of 127.0.0.1 by default.
    ///
    /// # Errors
    /// If a port is taken, or no certificate could be made.
    pub async fn start(config: Config) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        let authority = config.tls.then(Authority::new).transpose()?;
        #[cfg(feature = "tls")]
        let security = authority
            .as_ref()
            .map_or(Security::Plain, Authority::security);
        #[cfg(not(feature = "tls"))]
        let security = Security::Plain;
        if let Some(folder) = &config.files {
            let read = std::fs::read_dir(folder).map(drop);
            read.map_err(|error| Error::failed("cannot start: no folder of files", error))?;
        }
        let (auth, data, admin) = (config.auth, config.data, config.admin);
        let sim = Sim::new(config);

        let (stop, stopped) = watch::channel(false);
        let mut listeners = JoinSet::new();
        let mut start = async |door, address, security| {
            let (listener, url) = Listener::bind(address, door, sim.clone(), security).await?;
            listeners.spawn(listener.run(stopped.clone()));
            Ok::<_, Error>(url)
        };
        let urls = Urls {
            auth: start(Door::Auth, auth, security.clone()).await?,
            data: start(Door::Data, data, security).await?,
            admin: start(Door::Admin, admin, Security::Plain).await?,
        };
        // It is set once for each simulator.
        drop(sim.state.auth_url.set(urls.auth.clone()));
        Ok(Self {
            sim,
            urls,
            #[cfg(feature = "tls")]
            authority,
            stop,
            listeners,
        })
    }

    /// Returns the URL of the tokens, the contract's `{auth_url}`.
    #[must_use]
    pub fn auth_url(&self) -> &str {
        &self.urls.auth
    }

    /// Returns the URL of the data, the contract's `{base_url}`.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.urls.data
    }

    /// Returns the URL of the ledger and the controls.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.urls.admin
    }

    /// Returns the PEM file with the CA certificate, if the server speaks TLS. The file exists as
    /// long as the server.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn ca_file(&self) -> Option<&std::path::Path> {
        self.authority.as_ref().map(Authority::file)
    }

    /// Returns the simulator behind the sockets, which can be controlled.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Stops accepting, waits up to a second for answers in progress, and closes all connections.
    pub async fn shutdown(mut self) {
        // Without a receiver there is nothing left to stop.
        self.stop.send_replace(true);
        let ended = async { while self.listeners.join_next().await.is_some() {} };
        // The listeners that are left are aborted with the set.
        drop(tokio::time::timeout(GRACE, ended).await);
    }
}

/// The simulator behind the sockets.
impl Deref for Server {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        &self.sim
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

/// How long a shutdown waits for answers in progress.
const GRACE: Duration = Duration::from_secs(1);
