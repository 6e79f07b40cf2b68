//! The simulator itself: a service, and the controls of what it does next.

use std::{
    error::Error as StdError,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
};

use http::Request;
use tower_service::Service;

use crate::{
    config::Config,
    data,
    error::Error,
    error_body::ErrorBody,
    fault::Faults,
    future::ResponseFuture,
    ledger::Ledger,
    lock::lock,
    oidc,
    quota::{Quota, Usage},
    shared::Shared,
    socket::{Connection, Socket},
};

mod controls;

/// The transport data service as its contract describes it, without a socket.
///
/// A request whose path begins with `/auth/` or `/realms/` goes to the identity provider, any other
/// one to the data endpoints. The peer's address is the [`SocketAddr`] in the request's extensions,
/// or else `127.0.0.1:0`. It runs under tokio's clock, paused or not; use
/// [`Server`](crate::Server) for a socket.
///
/// # Backpressure
/// Always ready: the real service refuses, it does not hold back.
///
/// # Cancel safety
/// Dropping a future or a body is noted in the ledger as an aborted call.
///
/// # Clone
/// Clones share everything.
///
/// # Errors
/// Only faults of the script, and token requests whose body fails.
///
/// # Examples
/// ```
/// use http::Request;
/// use tds_sim::{Config, Sim};
/// use tower::ServiceExt as _;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sim = Sim::new(Config::default());
/// let token = sim.token(sim.client_id())?;
/// let call = Request::get("http://data.example/v1/live/bus")
///     .header("authorization", format!("Bearer {token}"))
///     .body(String::new())?;
/// let answer = sim.clone().oneshot(call).await?;
/// assert_eq!(answer.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sim {
    shared: Arc<Shared>,
}

// === impl Sim ===

impl Sim {
    /// A simulator with one member, `demo`, who holds one key.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            shared: Arc::new(Shared::new(config)),
        }
    }

    /// What it has seen.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.shared.ledger.clone()
    }

    /// The client id of the first key.
    #[must_use]
    pub fn client_id(&self) -> &str {
        self.shared.api_key.client_id()
    }

    /// The client secret of the first key, as it was at the start.
    #[must_use]
    pub fn client_secret(&self) -> &str {
        self.shared.api_key.client_secret()
    }

    /// Opens a connection that counts against the limit of `peer`'s address until it is dropped.
    ///
    /// Use it to have connections without sockets.
    pub fn connect(&self, peer: SocketAddr) -> Connection {
        Connection::new(self.socket(peer))
    }

    /// Replaces all faults.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.shared.script).replace(faults);
    }

    /// The faults as they are.
    #[must_use]
    pub fn faults(&self) -> Faults {
        lock(&self.shared.script).faults().clone()
    }

    /// Replaces the call-count ceiling; nobody has used anything of the new one yet.
    pub fn set_quota(&self, quota: Option<Quota>) {
        *lock(&self.shared.usage) = Usage::of(quota);
    }

    /// Replaces the format of error bodies.
    pub fn set_error_body(&self, format: ErrorBody) {
        *lock(&self.shared.error_body) = format;
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A connection of the data listener.
    pub(crate) fn socket(&self, peer: SocketAddr) -> Socket {
        Socket::counted(
            peer,
            Arc::clone(&self.shared.gate),
            self.shared.ledger.clone(),
        )
    }
}

impl<B> Service<Request<B>> for Sim
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Response = http::Response<crate::Body>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let path = request.uri().path();
        if path.starts_with("/auth/") || path.starts_with("/realms/") {
            ResponseFuture::new(oidc::answer(shared, None, request))
        } else {
            let peer = request.extensions().get().copied().unwrap_or(NOBODY);
            ResponseFuture::new(data::answer(shared, None, peer, request))
        }
    }
}

/// The peer of a request that names none.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[cfg(test)]
mod tests;
