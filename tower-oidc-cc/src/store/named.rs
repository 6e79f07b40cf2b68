//! A store as the refresh uses it: for one kind of token, within bounds of time.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::timeout;

use super::{StoredToken, TokenStore, stored::Worth};
use crate::{Credentials, Parameters, TokenEndpoint};

#[cfg(test)]
mod tests;

/// One operation. The box is on the cold path, a few for each flight.
type Work<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// A [`TokenStore`] whose type has ended.
trait Erased: Send + Sync {
    fn load<'a>(&'a self, key: &'a str) -> Work<'a, Option<StoredToken>>;
    fn save<'a>(&'a self, key: &'a str, token: &'a StoredToken) -> Work<'a, ()>;
    fn lease<'a>(&'a self, key: &'a str, term: Duration) -> Work<'a, bool>;
    fn release(&self, key: &str) -> bool;
}

/// The store, and the name of what is kept in it.
#[derive(Clone)]
pub(crate) struct Named {
    store: Arc<dyn Erased>,
    kind: String,
}

/// The store cannot be used now, and has been told of.
#[derive(Debug)]
pub(crate) struct Broken;

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

// === impl Named ===

impl Named {
    pub(crate) fn new(store: impl TokenStore) -> Self {
        Self {
            store: Arc::new(store),
            kind: String::new(),
        }
    }

    /// For tokens of this endpoint that are asked for like this.
    pub(crate) fn of_kind(self, endpoint: &TokenEndpoint, parameters: &Parameters) -> Self {
        let kind = kind(endpoint, parameters);
        Self { kind, ..self }
    }

    pub(crate) fn key(&self, credentials: &Credentials) -> String {
        of_client(&self.kind, credentials.client_id())
    }

    /// What the token under this key is worth, if one is there that is worth anything.
    pub(crate) async fn load_at(
        &self,
        now: SystemTime,
        key: &str,
    ) -> Result<Option<Worth>, Broken> {
        let stored = bounded("load", self.store.load(key)).await?;
        Ok(stored.and_then(|stored| stored.read_at(now, key)))
    }

    pub(crate) async fn save(
        &self,
        key: &str,
        token: &str,
        issued: SystemTime,
        life: Duration,
    ) -> Result<(), Broken> {
        match StoredToken::new(key, token, issued, life) {
            Some(stored) => bounded("save", self.store.save(key, &stored)).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn lease(&self, key: &str, term: Duration) -> Result<bool, Broken> {
        bounded("lease", self.store.lease(key, term)).await
    }

    pub(crate) fn release(&self, key: &str) -> bool {
        self.store.release(key)
    }
}

/// The store is somebody else's code: what it would show is not asked for.
impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Named")
    }
}

async fn bounded<T>(operation: &str, work: Work<'_, T>) -> Result<T, Broken> {
    match timeout(BOUND, work).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => tracing::warn!(operation, error, "the token store failed"),
        Err(_) => tracing::warn!(operation, "the token store took too long"),
    }
    Err(Broken)
}

/// Names a kind of token: everything that makes one differ from another, but for the client id.
///
/// Each part stands behind its length, so that no two kinds share a name.
fn kind(endpoint: &TokenEndpoint, parameters: &Parameters) -> String {
    let mut name = String::from("tower-oidc-cc");
    push(&mut name, &endpoint.uri().to_string());
    for (field, value) in parameters.fields() {
        push(&mut name, field);
        push(&mut name, value);
    }
    name
}

/// Names the token of one client.
fn of_client(kind: &str, client_id: &str) -> String {
    let mut name = kind.to_owned();
    push(&mut name, client_id);
    name
}

fn push(name: &mut String, part: &str) {
    name.push(' ');
    name.push_str(&part.len().to_string());
    name.push(':');
    name.push_str(part);
}

/// For one operation. A store is there to save a token request, which takes some milliseconds; one
/// that needs longer than this costs more than it saves.
pub(crate) const BOUND: Duration = Duration::from_secs(1);
