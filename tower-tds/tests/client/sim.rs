//! The simulated service on sockets, and clients of it.

use tds_sim::{Config, Server};
use tower_tds::{Builder, Client, Credentials};

pub(crate) async fn start(config: Config) -> Server {
    Server::start(config).await.expect("a free port")
}

pub(crate) fn credentials(server: &Server) -> Credentials {
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    credentials.expect("the simulator's are usable")
}

pub(crate) fn builder(server: &Server) -> Builder {
    builder_at(server, server.base_url())
}

/// Builds a client for data from `base`.
pub(crate) fn builder_at(server: &Server, base: &str) -> Builder {
    Client::builder(server.auth_url(), base, credentials(server)).loopback_http()
}

pub(crate) fn client(server: &Server) -> Client {
    client_at(server, server.base_url())
}

pub(crate) fn client_at(server: &Server, base: &str) -> Client {
    let built = builder_at(server, base).build();
    built.expect("loopback is let through")
}
