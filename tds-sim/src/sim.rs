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
    realm::ApiKey,
    shared::Shared,
    socket::{Connection, Socket},
};

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

/// The identity provider's controls.
impl Sim {
    /// Issues a token to a key without a POST.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id: add one first.
    pub fn token(&self, client_id: &str) -> Result<String, Error> {
        let granted = lock(&self.shared.realm).grant(client_id, "profile email")?;
        self.shared.ledger.token_issued();
        Ok((*granted.token).to_owned())
    }

    /// Changes the lifetime of the tokens issued from here on.
    pub fn set_expires_in(&self, seconds: u64) {
        lock(&self.shared.realm).expires_in = seconds;
    }

    /// Revokes one token.
    pub fn revoke(&self, token: &str) {
        lock(&self.shared.realm).tokens.revoke(token);
    }

    /// Revokes every token issued so far.
    pub fn revoke_all(&self) {
        lock(&self.shared.realm).revoke_all();
    }

    /// Signs with a new key from here on; what the old one signed is no longer valid.
    pub fn rotate_signing_key(&self) {
        lock(&self.shared.realm).tokens.rotate_signing_key();
    }

    /// The public half of the signing key, as PEM.
    ///
    /// # Errors
    /// If no key could be made, which is a fault of the host.
    pub fn public_key(&self) -> Result<String, Error> {
        lock(&self.shared.realm).tokens.public_key()
    }

    /// Adds a member without keys; one that exists stays as it is.
    pub fn add_member(&self, name: &str) {
        lock(&self.shared.realm).add_member(name);
    }

    /// Gives a member another key.
    ///
    /// # Errors
    /// [`Error::is_key_limit`] if the member holds three: delete one first. [`Error::is_unknown`]
    /// if there is no such member: add it first.
    pub fn add_key(&self, member: &str) -> Result<ApiKey, Error> {
        lock(&self.shared.realm).add_key(member)
    }

    /// Takes a key away from its member.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn delete_key(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm).delete_key(client_id)
    }

    /// Gives a key a new secret; the old one stops working at once.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn rotate_secret(&self, client_id: &str) -> Result<ApiKey, Error> {
        lock(&self.shared.realm).rotate_secret(client_id)
    }

    /// Lets a key get tokens again.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn enable_key(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.enabled = true)
    }

    /// Refuses a key every token; those it has stay valid.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn disable_key(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.enabled = false)
    }

    /// Changes the realm roles that a key's tokens carry from here on.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn set_roles<R: Into<String>>(
        &self,
        client_id: &str,
        roles: impl IntoIterator<Item = R>,
    ) -> Result<(), Error> {
        let roles = roles.into_iter().map(Into::into).collect();
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.roles = roles)
    }

    /// Takes from a key the service account without which there are no client credentials.
    ///
    /// # Errors
    /// [`Error::is_unknown`] if no key has this client id.
    pub fn remove_service_account(&self, client_id: &str) -> Result<(), Error> {
        lock(&self.shared.realm)
            .key_mut(client_id)
            .map(|key| key.service_account = false)
    }

    /// Opens the realm again.
    pub fn enable_realm(&self) {
        lock(&self.shared.realm).enabled = true;
    }

    /// Closes the realm to everybody; tokens stay valid.
    pub fn disable_realm(&self) {
        lock(&self.shared.realm).enabled = false;
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
