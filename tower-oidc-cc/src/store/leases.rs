//! The store within bounds of time: a token of another process, or the lease to request one.

use std::{error::Error, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};

use super::{StoredToken, TokenStore};
use crate::{
    Credentials, Parameters, TokenEndpoint, clock::Clock, error::redacted, request::Issued,
    source::token_of,
};

#[cfg(test)]
mod tests;

/// Looks for a token of another process before a token request, and saves the own one after it.
pub(crate) struct Leases {
    store: Box<dyn Erased>,
    clock: Clock,
    /// The length of a lease.
    term: Duration,
    /// Names the endpoint and the parameters.
    kind: String,
    /// The key of the last request.
    key: String,
    /// The end of the lease of that key, while this process holds it.
    leased: Option<Instant>,
}

/// One operation.
type Work<'a, T> = BoxFuture<'a, Result<T, Box<dyn Error + Send + Sync>>>;

/// A [`TokenStore`] without its type.
pub(crate) trait Erased: Send + Sync {
    fn load<'a>(&'a self, key: &'a str) -> Work<'a, Option<StoredToken>>;
    fn save<'a>(&'a self, key: &'a str, token: &'a StoredToken) -> Work<'a, ()>;
    fn lease<'a>(&'a self, key: &'a str, term: Duration) -> Work<'a, bool>;
    fn release(&self, key: &str) -> bool;
}

impl<S: TokenStore> Erased for S {
    fn load<'a>(&'a self, key: &'a str) -> Work<'a, Option<StoredToken>> {
        Box::pin(TokenStore::load(self, key))
    }

    fn save<'a>(&'a self, key: &'a str, token: &'a StoredToken) -> Work<'a, ()> {
        Box::pin(TokenStore::save(self, key, token))
    }

    fn lease<'a>(&'a self, key: &'a str, term: Duration) -> Work<'a, bool> {
        Box::pin(TokenStore::lease(self, key, term))
    }

    fn release(&self, key: &str) -> bool {
        TokenStore::release(self, key)
    }
}

// === impl Leases ===

impl Leases {
    pub(crate) fn new(
        store: Box<dyn Erased>,
        clock: Clock,
        term: Duration,
        endpoint: &TokenEndpoint,
        parameters: &Parameters,
    ) -> Self {
        Self {
            store,
            clock,
            term,
            kind: kind(endpoint, parameters),
            key: String::new(),
            leased: None,
        }
    }

    /// A token of another process that is wanted; `None` if this process has to request one.
    ///
    /// While another process holds the lease, this one waits for its token for `PATIENCE`.
    pub(crate) async fn find(
        &mut self,
        credentials: &Credentials,
        wants: impl Fn(&Issued) -> bool + Send,
    ) -> Option<Issued> {
        let key = push(self.kind.clone(), credentials.client_id());
        if key != self.key {
            self.release();
            (self.key, self.leased) = (key, None);
        }
        let give_up = self.clock.now().steady.checked_add(PATIENCE)?;
        loop {
            let found = bounded("load", self.store.load(&self.key)).await?;
            // Read after the answer, because a slow store makes no token younger.
            let now = self.clock.now();
            let issued = found.and_then(|stored| stored.read_at(now, &self.key));
            if let Some(issued) = issued.filter(&wants) {
                self.release();
                return Some(issued);
            }
            let now = now.steady;
            if now >= give_up || self.leased.is_some_and(|until| now < until) {
                return None;
            }
            if bounded("lease", self.store.lease(&self.key, self.term)).await? {
                // Counted from before the request, so that it is not thought to last longer than it
                // does. The loop looks again, because the last holder may have saved a token since.
                self.leased = now.checked_add(self.term);
            } else {
                sleep(LOOK).await;
            }
        }
    }

    /// Saves a token of this process, or gives back the lease if there is none.
    pub(crate) async fn save(&mut self, issued: Option<Issued>) {
        let stored = issued.and_then(|issued| {
            let token = token_of(&issued.header)?;
            StoredToken::new(&self.key, token, issued.sent.wall, issued.life)
        });
        if let Some(stored) = stored
            && let Some(()) = bounded("save", self.store.save(&self.key, &stored)).await
        {
            self.leased = None;
        }
        self.release();
    }

    /// Gives back the lease, if this process holds one.
    fn release(&mut self) {
        if self.leased.is_some() && self.store.release(&self.key) {
            self.leased = None;
        }
    }
}

/// A lease that outlives its source would make other processes wait.
impl Drop for Leases {
    fn drop(&mut self) {
        self.release();
    }
}

/// `None` if the store failed, which is logged.
async fn bounded<T>(operation: &str, work: Work<'_, T>) -> Option<T> {
    match timeout(BOUND, work).await {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(error)) => {
            let error = redacted(&error.to_string());
            tracing::warn!(operation, error, "the token store failed");
        }
        Err(_) => tracing::warn!(operation, "the token store took too long"),
    }
    None
}

/// Names a kind of token: everything that makes one differ from another, but for the client id.
fn kind(endpoint: &TokenEndpoint, parameters: &Parameters) -> String {
    let uri = endpoint.uri().to_string();
    let fields = parameters.fields().flat_map(|(name, value)| [name, value]);
    let parts = [uri.as_str()].into_iter().chain(fields);
    parts.fold(String::from("tower-oidc-cc"), push)
}

/// Appends a part of a name behind its length, so that no two kinds of tokens share a name.
fn push(name: String, part: &str) -> String {
    format!("{name} {}:{part}", part.len())
}

/// Between two looks for the token of another process: fifty waiting processes make two hundred
/// reads a second, which a Redis does not notice.
const LOOK: Duration = Duration::from_millis(250);
/// The time for one operation. A slower store costs more than the token request that it saves.
pub(crate) const BOUND: Duration = Duration::from_secs(2);
/// The wait for a token of another process: two leases and a healthy answer. When a process that was
/// stopped with the lease loses it, one other process takes over.
pub(crate) const PATIENCE: Duration = Duration::from_secs(12);
