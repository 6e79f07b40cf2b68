//! The simulator on three sockets of the loopback interface.

use std::{path::Path, time::Duration};

use tokio::{sync::watch, task::JoinHandle};

use crate::{
    config::{Config, Tls},
    error::Error,
    ledger::Ledger,
    server::{listener::Listener, service::Door, tls::Authority},
    sim::Sim,
};

mod admin;
mod controls;
mod listener;
mod service;
mod stream;
mod tls;

/// The simulator on sockets: one for tokens, one for data, one to control it.
///
/// # Cancel safety
/// Dropping it closes everything at once; [`shutdown`](Self::shutdown) lets answers in progress
/// end first.
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
#[derive(Debug)]
pub struct Server {
    sim: Sim,
    urls: Urls,
    authority: Option<Authority>,
    stop: watch::Sender<bool>,
    listeners: Vec<Task>,
}

/// Where the three listeners are.
#[derive(Debug)]
struct Urls {
    auth: String,
    data: String,
    admin: String,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Task(JoinHandle<()>);

// === impl Server ===

impl Server {
    /// Starts the three listeners on 127.0.0.1.
    ///
    /// # Errors
    /// If a port is taken, or no signing key or certificate could be made.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let authority = match config.tls {
            Tls::Off => None,
            Tls::On => Some(Authority::new()?),
        };
        let ports = config.ports;
        let sim = Sim::new(config);
        // The first key takes its time; better now than within the first token call.
        let warm = sim.clone();
        let made = tokio::task::spawn_blocking(move || warm.public_key().map(drop)).await;
        made.map_err(|panic| Error::start("the signing key", panic))??;

        let (stop, stopped) = watch::channel(false);
        let mut listeners = Vec::new();
        let mut start = async |door, port, authority: Option<&Authority>| {
            let tls = authority.map(Authority::acceptor);
            let listener = Listener::bind(port, door, sim.clone(), tls).await?;
            let url = listener.url();
            listeners.push(Task(tokio::spawn(listener.run(stopped.clone()))));
            Ok::<_, Error>(url)
        };
        let urls = Urls {
            auth: start(Door::Auth, ports.auth, authority.as_ref()).await?,
            data: start(Door::Data, ports.data, authority.as_ref()).await?,
            admin: start(Door::Admin, ports.admin, None).await?,
        };
        Ok(Self {
            sim,
            urls,
            authority,
            stop,
            listeners,
        })
    }

    /// Where tokens are: the contract's `{auth_url}`.
    #[must_use]
    pub fn auth_url(&self) -> &str {
        &self.urls.auth
    }

    /// Where data are: the contract's `{base_url}`.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.urls.data
    }

    /// Where the ledger and the controls are.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.urls.admin
    }

    /// The client id of the first key.
    #[must_use]
    pub fn client_id(&self) -> &str {
        self.sim.client_id()
    }

    /// The client secret of the first key, as it was at the start.
    #[must_use]
    pub fn client_secret(&self) -> &str {
        self.sim.client_secret()
    }

    /// The PEM file with the certificate of the authority, if it speaks TLS. It lives as long as
    /// the server.
    #[must_use]
    pub fn ca_file(&self) -> Option<&Path> {
        self.authority.as_ref().map(Authority::file)
    }

    /// What it has seen.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.sim.ledger()
    }

    /// The simulator behind the sockets, to control it.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Accepts nothing more, lets answers in progress end for up to a second, and closes.
    pub async fn shutdown(mut self) {
        // Without a receiver there is nothing left to stop.
        self.stop.send_replace(true);
        for listener in &mut self.listeners {
            if tokio::time::timeout(GRACE, &mut listener.0).await.is_err() {
                listener.0.abort();
            }
        }
    }
}

// === impl Task ===

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How long a shutdown waits for answers in progress.
const GRACE: Duration = Duration::from_secs(1);
