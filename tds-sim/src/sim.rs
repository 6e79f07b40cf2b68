//! The simulator as a service, with its controls.

use std::{
    error::Error as StdError,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    body::Body,
    clock::lock,
    config::{Config, Quota},
    data,
    error::Error,
    fault::Faults,
    ledger::Ledger,
    limits::Usage,
    oidc,
    realm::ApiKey,
    socket::Socket,
    state::{Part, State},
};

/// The transport data service as its contract describes it, without a socket.
///
/// If a request's path begins with `/auth/` or `/realms/`, the identity provider answers it,
/// otherwise the data endpoints. The peer's address is that of the [`SocketAddr`] in the request's
/// extensions, or else `127.0.0.1:0`. The simulator runs under tokio's clock, paused or not; for
/// sockets, use [`Server`](crate::Server), which also has three tests to copy.
///
/// # Backpressure
/// Always ready, because the real service refuses requests instead of queueing them.
///
/// # Cancel safety
/// If you drop a future or a body, the call is aborted, and the ledger records that.
///
/// # Clone
/// Clones share everything.
///
/// # Errors
/// You get an error only for [faults](Faults) that end a call without a response, and for token
/// requests whose body cannot be read.
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
#[derive(Clone)]
pub struct Sim {
    pub(crate) state: Arc<State>,
}

/// Future of a response. Dropping it aborts the call in the ledger, if the call was counted.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

type Answer = Result<Response<Body>, Error>;

// === impl Sim ===

impl Sim {
    /// Creates a simulator with one member of the service, `demo`, who holds one key.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            state: Arc::new(State::new(config)),
        }
    }

    /// Returns the ledger.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.state.intake.ledger.clone()
    }

    /// Returns the client id of the first key.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.state.api_key.client_id
    }

    /// Returns the client secret of the first key, as it was at the start.
    #[must_use]
    pub fn client_secret(&self) -> &str {
        &self.state.api_key.client_secret
    }

    /// Opens a connection that counts against the limit of `peer`'s address until it is dropped.
    ///
    /// Use it to count connections without sockets.
    #[must_use = "the connection counts only until it is dropped"]
    pub fn connect(&self, peer: SocketAddr) -> impl Send + Sync + 'static {
        Socket::counted(peer, &self.state.intake)
    }

    /// Replaces all faults.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.state.script).replace(faults);
    }

    /// Returns the current faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        lock(&self.state.script).faults.clone()
    }

    /// Replaces the quota of calls. Each key starts again with no calls counted.
    pub fn set_quota(&self, quota: Option<Quota>) {
        let config = (*self.state.config()).clone();
        self.state.set(Config { quota, ..config });
        *lock(&self.state.usage) = Usage::of(quota);
    }

    /// Returns parts to their state at the start, or everything with [`Part::ALL`], so that you can
    /// use one simulator for many tests.
    ///
    /// # Examples
    /// ```
    /// use tds_sim::{Config, Part, Sim};
    ///
    /// let sim = Sim::new(Config::default());
    /// sim.set_quota(Some("5/60s".parse()?));
    /// sim.reset([Part::Ledger, Part::Settings]); // again without a quota
    /// sim.reset(Part::ALL);
    /// # Ok::<_, tds_sim::ParseError>(())
    /// ```
    pub fn reset(&self, parts: impl IntoIterator<Item = Part>) {
        parts.into_iter().for_each(|part| self.state.reset(part));
    }

    /// Issues a token to a key without a token request.
    ///
    /// # Errors
    /// Fails if no key has this client id: add one first.
    pub fn token(&self, client_id: &str) -> Result<String, Error> {
        let issuer = oidc::issuer(&self.state, None);
        let reply = lock(&self.state.realm).grant(client_id, "profile email", &issuer)?;
        self.state.intake.ledger.token_issued();
        Ok(reply["access_token"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Revokes every token issued so far.
    pub fn revoke_all(&self) {
        lock(&self.state.realm).revoke_all();
    }

    /// Adds a key to a member of the service, and registers the member if there is none of that
    /// name.
    ///
    /// # Errors
    /// Fails if the member already holds three keys.
    pub fn add_key(&self, member: &str) -> Result<ApiKey, Error> {
        lock(&self.state.realm).add_key(member)
    }

    /// Gives a key a new secret; the old one stops working at once.
    ///
    /// # Errors
    /// Fails if no key has this client id.
    pub fn rotate_secret(&self, client_id: &str) -> Result<ApiKey, Error> {
        lock(&self.state.realm).rotate_secret(client_id)
    }

    /// Refuses all further token requests of a key. Its existing tokens stay valid.
    ///
    /// # Errors
    /// Fails if no key has this client id.
    pub fn disable_key(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.state.realm)
            .key_mut(client_id)
            .map(|key| key.enabled = false)
    }

    /// Changes the realm roles of the tokens that a key gets from now on.
    ///
    /// # Errors
    /// Fails if no key has this client id.
    pub fn set_roles<R: Into<String>>(
        &self,
        client_id: &str,
        roles: impl IntoIterator<Item = R>,
    ) -> Result<(), Error> {
        let roles = roles.into_iter().map(Into::into).collect();
        lock(&self.state.realm)
            .key_mut(client_id)
            .map(|key| key.roles = roles)
    }
}

impl<B> Service<Request<B>> for Sim
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let state = Arc::clone(&self.state);
        let path = request.uri().path();
        if path.starts_with("/auth/") || path.starts_with("/realms/") {
            Box::pin(oidc::answer(state, None, request))
        } else {
            let peer = request.extensions().get().copied().unwrap_or(NO_PEER);
            Box::pin(data::answer(state, None, peer, request))
        }
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

/// Peer of a request without an address in its extensions.
const NO_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[cfg(test)]
mod tests;
