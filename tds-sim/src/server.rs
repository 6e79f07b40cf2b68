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

/// Simulator on three sockets: one for tokens, one for data, and one to control it.
///
/// # Cancel safety
/// Dropping it closes all connections at once. [`shutdown`](Self::shutdown) first lets answers in
/// progress end.
///
/// # Tests to copy
/// Your client calls the URLs; your test asserts on what the server saw. Put your own client where
/// `get` is, and copy what fits:
/// ```test_harness
/// use std::error::Error;
///
/// use http::{Request, StatusCode};
/// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
/// use tds_sim::{Config, Faults, Part, Server, Sim};
/// use tower::ServiceExt as _;
///
/// type Outcome = Result<(), Box<dyn Error + Send + Sync>>;
///
/// async fn get(server: &Server, path: &str, token: &str) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
///     let call = Request::get(format!("{}{path}", server.base_url()))
///         .header("authorization", format!("Bearer {token}"))
///         .body(String::new())?;
///     let client = Client::builder(TokioExecutor::new()).build_http();
///     Ok(client.request(call).await?.status())
/// }
///
/// // A fault of one path, and what the ledger has of each call.
/// #[tokio::test]
/// async fn only_trams_are_out_of_order() -> Outcome {
///     let server = Server::start(Config::default()).await?;
///     let token = server.token(server.client_id())?;
///     let mut faults = Faults::default();
///     faults.data.push("503@every:2@/v1/live/tram".parse()?);
///     server.set_faults(faults);
///
///     for path in ["/v1/live/tram", "/v1/live/bus", "/v1/live/tram"] {
///         get(&server, path, &token).await?;
///     }
///     let calls = server.ledger().arrivals();
///     assert_eq!(calls.iter().map(|call| call.status).collect::<Vec<_>>(), [Some(200), Some(200), Some(503)]);
///     assert_eq!(&*calls[2].target, "/v1/live/tram");
///     Ok(())
/// }
///
/// // One server for many tests: each begins with a reset.
/// #[tokio::test]
/// async fn a_reset_brings_back_the_tokens_and_the_limits() -> Outcome {
///     let mut config = Config::default();
///     config.quota = Some("1/3600s".parse()?);
///     let server = Server::start(config).await?;
///     for _ in 0..2 {
///         server.reset(Part::ALL);
///         let token = server.token(server.client_id())?;
///         assert_eq!(get(&server, "/v1/live/bus", &token).await?, 200);
///         assert_eq!(get(&server, "/v1/live/bus", &token).await?, 429);
///         assert_eq!(server.ledger().summary().data_calls, 2);
///     }
///     Ok(())
/// }
///
/// // Without a socket, under a paused clock: a day passes at once.
/// #[tokio::test(start_paused = true)]
/// async fn a_token_is_refused_after_its_day() -> Outcome {
///     let sim = Sim::new(Config::default());
///     let token = sim.token(sim.client_id())?;
///     for (hours, expected) in [(0, 200), (24, 200), (1, 401)] {
///         tokio::time::sleep(std::time::Duration::from_secs(hours * 3600)).await;
///         let call = Request::get("/v1/live/bus")
///             .header("authorization", format!("Bearer {token}"))
///             .body(String::new())?;
///         assert_eq!(sim.clone().oneshot(call).await?.status(), expected);
///     }
///     Ok(())
/// }
/// ```
pub struct Server {
    sim: Sim,
    /// URLs of the listeners: auth, data, admin.
    urls: [String; 3],
    #[cfg(feature = "tls")]
    authority: Option<Authority>,
    stop: watch::Sender<bool>,
    listeners: JoinSet<()>,
}

// === impl Server ===

impl Server {
    /// Starts the three listeners, on free ports of 127.0.0.1 by default.
    ///
    /// # Errors
    /// Fails if a port is taken, or no certificate could be made.
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
            read.map_err(|error| {
                let folder = folder.display();
                let what =
                    format!("cannot start: name a folder of files that can be read, not {folder}");
                Error::failed(what, error)
            })?;
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
        let urls = [
            start(Door::Auth, auth, security.clone()).await?,
            start(Door::Data, data, security).await?,
            start(Door::Admin, admin, Security::Plain).await?,
        ];
        // Each simulator is started once, so the cell is still empty.
        drop(sim.state.auth_url.set(urls[0].clone()));
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
        &self.urls[0]
    }

    /// Returns the URL of the data, the contract's `{base_url}`.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.urls[1]
    }

    /// Returns the URL of the ledger and the controls.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.urls[2]
    }

    /// Returns the PEM file with the CA certificate, if the server speaks TLS. It exists as long as
    /// the server.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn ca_file(&self) -> Option<&std::path::Path> {
        self.authority.as_ref().map(Authority::file)
    }

    /// Returns the simulator behind the sockets, which you can control.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Stops accepting, waits up to a second for answers in progress, and closes all connections.
    pub async fn shutdown(mut self) {
        // If no receiver is left, there is nothing to stop.
        self.stop.send_replace(true);
        let ended = async { while self.listeners.join_next().await.is_some() {} };
        // Dropping the set aborts the listeners that are left.
        drop(tokio::time::timeout(GRACE, ended).await);
    }
}

/// Simulator behind the sockets.
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
