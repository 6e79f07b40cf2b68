//! The store within bounds of time: a token of another process, or the lease to request one.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, sleep, timeout};

use super::{StoredToken, TokenStore, Worth};
use crate::{
    Credentials, Parameters, TokenEndpoint,
    clock::{Clock, Timestamp},
    error::redacted,
    request::Issued,
    source::{header_of, token_of},
};

#[cfg(test)]
mod tests;

/// Looks for a token of another process before a token request, and saves the own one after it.
pub(crate) struct Leases {
    store: Option<Named>,
    clock: Clock,
    /// The length of a lease.
    term: Duration,
    /// The key of the last request.
    key: String,
    /// The end of the lease of that key, while this process holds it.
    leased: Option<Instant>,
}

/// One operation.
type Work<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// A [`TokenStore`] without its type.
trait Erased: Send + Sync {
    fn load<'a>(&'a self, key: &'a str) -> Work<'a, Option<StoredToken>>;
    fn save<'a>(&'a self, key: &'a str, token: &'a StoredToken) -> Work<'a, ()>;
    fn lease<'a>(&'a self, key: &'a str, term: Duration) -> Work<'a, bool>;
    fn release(&self, key: &str) -> bool;
}

/// The store, and the name of its kind of tokens.
#[derive(Clone)]
pub(crate) struct Named {
    store: Arc<dyn Erased>,
    kind: String,
}

/// The store failed, which was logged, or the wall clock shows no time that it can store.
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

// === impl Leases ===

impl Leases {
    pub(crate) fn new(store: Option<Named>, clock: Clock, term: Duration) -> Self {
        Self {
            store,
            clock,
            term,
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
        let store = self.store.clone()?;
        let key = store.key(credentials);
        if key != self.key {
            self.release();
            (self.key, self.leased) = (key, None);
        }
        let give_up = self.clock.now().steady.checked_add(PATIENCE)?;
        self.look(&store, give_up, wants).await.unwrap_or_default()
    }

    async fn look(
        &mut self,
        store: &Named,
        give_up: Instant,
        wants: impl Fn(&Issued) -> bool + Send,
    ) -> Result<Option<Issued>, Broken> {
        loop {
            let found = store.load(&self.key).await?;
            // Read after the answer, because a slow store makes no token younger.
            let now = self.clock.now();
            let worth = found.and_then(|stored| stored.read_at(now.wall, &self.key));
            let issued = worth.and_then(|worth| issued_at(now, &worth));
            if let Some(issued) = issued.filter(&wants) {
                self.release();
                return Ok(Some(issued));
            }
            let now = now.steady;
            if now >= give_up || self.leased.is_some_and(|until| now < until) {
                return Ok(None);
            }
            if store.lease(&self.key, self.term).await? {
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
        let Some(store) = self.store.clone() else {
            return;
        };
        if let Some(issued) = issued
            && let Some(token) = token_of(&issued.header)
        {
            let saved = store.save(&self.key, token, issued.sent.wall, issued.life);
            if saved.await.is_ok() {
                self.leased = None;
                return;
            }
        }
        self.release();
    }

    /// Gives back the lease, if this process holds one.
    fn release(&mut self) {
        if let Some(store) = &self.store
            && self.leased.is_some()
            && store.release(&self.key)
        {
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

// === impl Named ===

impl Named {
    pub(crate) fn new(store: impl TokenStore) -> Self {
        Self {
            store: Arc::new(store),
            kind: String::new(),
        }
    }

    /// Names the tokens of this endpoint and these parameters.
    pub(crate) fn of_kind(self, endpoint: &TokenEndpoint, parameters: &Parameters) -> Self {
        let kind = kind(endpoint, parameters);
        Self { kind, ..self }
    }

    pub(crate) fn key(&self, credentials: &Credentials) -> String {
        of_client(&self.kind, credentials.client_id())
    }

    pub(crate) async fn load(&self, key: &str) -> Result<Option<StoredToken>, Broken> {
        bounded("load", self.store.load(key)).await
    }

    pub(crate) async fn save(
        &self,
        key: &str,
        token: &str,
        issued: SystemTime,
        life: Duration,
    ) -> Result<(), Broken> {
        let stored = StoredToken::new(key, token, issued, life).ok_or(Broken)?;
        bounded("save", self.store.save(key, &stored)).await
    }

    pub(crate) async fn lease(&self, key: &str, term: Duration) -> Result<bool, Broken> {
        bounded("lease", self.store.lease(key, term)).await
    }

    pub(crate) fn release(&self, key: &str) -> bool {
        self.store.release(key)
    }
}

/// The `Debug` of a foreign store may show secrets.
impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Named")
    }
}

fn issued_at(now: Timestamp, worth: &Worth) -> Option<Issued> {
    let (sent, life) = match now.checked_sub(worth.age) {
        Some(sent) => (sent, worth.life),
        // This machine was started after the token was issued: what is left of it counts.
        None => (now, worth.life.saturating_sub(worth.age)),
    };
    Some(Issued {
        header: header_of(&worth.token).ok()?,
        sent,
        life,
        is_own: false,
    })
}

async fn bounded<T>(operation: &str, work: Work<'_, T>) -> Result<T, Broken> {
    match timeout(BOUND, work).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => {
            let error = redacted(&error.to_string());
            tracing::warn!(operation, error, "the token store failed");
        }
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

/// Between two looks for the token of another process: fifty waiting processes make two hundred
/// reads a second, which a Redis does not notice.
const LOOK: Duration = Duration::from_millis(250);
/// The time for one operation. A slower store costs more than the token request that it saves.
pub(crate) const BOUND: Duration = Duration::from_secs(2);
/// The wait for a token of another process: two leases and a healthy answer. When a process that was
/// stopped with the lease loses it, one other process takes over.
pub(crate) const PATIENCE: Duration = Duration::from_secs(12);
