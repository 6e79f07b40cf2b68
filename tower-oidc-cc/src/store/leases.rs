//! Asking the other processes first, by a store within bounds of time: a token of theirs, or the
//! lease to ask for one for all.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, sleep, timeout};

use super::{StoredToken, TokenStore, stored::Worth};
use crate::{
    Credentials, Parameters, TokenEndpoint,
    clock::{Clock, Timestamp},
    request::Issued,
    source,
};

#[cfg(test)]
mod tests;

/// Who has what the others got.
pub(crate) trait Wants {
    /// Whether a token from the store is better than what is here.
    fn wants(&self, issued: &Issued) -> bool;
}

/// Asks the others before a token request, and tells them of its token.
pub(crate) struct Leases {
    store: Option<Named>,
    clock: Clock,
    /// For how long a process is given to get a token for all.
    term: Duration,
    /// Under which the last token was asked for.
    key: String,
    /// Until when this process holds the lease of that key.
    leased: Option<Instant>,
}

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

/// The store cannot be used now, and has been told of; or the wall clock shows no time to store.
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

    /// A token that another process got; `None` if it is on this one to ask for one.
    ///
    /// While another holds the lease, it is waited for, for one term at most: by then it has died,
    /// or the store is not what it says.
    pub(crate) async fn ask(
        &mut self,
        holder: &Weak<impl Wants>,
        credentials: &Credentials,
    ) -> Option<Issued> {
        let store = self.store.clone()?;
        let key = store.key(credentials);
        if key != self.key {
            self.release();
            (self.key, self.leased) = (key, None);
        }
        let give_up = self.clock.now().steady.checked_add(self.term)?;
        let found = self.look(&store, give_up, holder).await;
        found.unwrap_or_default()
    }

    async fn look(
        &mut self,
        store: &Named,
        give_up: Instant,
        holder: &Weak<impl Wants>,
    ) -> Result<Option<Issued>, Broken> {
        loop {
            let found = store.load(&self.key).await?;
            // When the answer is here: a slow store makes no token younger.
            let now = self.clock.now();
            let worth = found.and_then(|stored| stored.read_at(now.wall, &self.key));
            let issued = worth.and_then(|worth| issued_at(now, &worth));
            if let Some(issued) = issued
                && holder.upgrade().is_some_and(|holder| holder.wants(&issued))
            {
                self.release();
                return Ok(Some(issued));
            }
            let now = now.steady;
            if now >= give_up || self.leased.is_some_and(|until| now < until) {
                return Ok(None);
            }
            if store.lease(&self.key, self.term).await? {
                // From before it was asked for, so that it is not thought to last longer than it
                // does. And another look: who had it before may have saved a token since ours.
                self.leased = now.checked_add(self.term);
            } else {
                sleep(LOOK).await;
            }
        }
    }

    /// Tells the others of a token that this process has asked for, after [`ask`](Self::ask); or
    /// that it got none, so that another may try.
    pub(crate) async fn tell(&mut self, issued: Option<&Issued>) {
        let Some(store) = self.store.clone() else {
            return;
        };
        // A failure has been told of, and the others can ask for themselves.
        if let Some(issued) = issued
            && let Some(token) = source::token(&issued.header)
        {
            let saved = store.save(&self.key, token, issued.sent.wall, issued.life);
            if saved.await.is_ok() {
                self.leased = None;
                return;
            }
        }
        self.release();
    }

    /// Leaves the lease to others, if this process holds one.
    pub(crate) fn release(&mut self) {
        if let Some(store) = &self.store
            && self.leased.is_some()
            && store.release(&self.key)
        {
            self.leased = None;
        }
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

/// The store is somebody else's code: what it would show is not asked for.
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
        header: source::header(&worth.token).ok()?,
        sent,
        life,
        own: false,
    })
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

/// Between two looks for what another process is getting: fifty processes that wait make two
/// hundred reads a second, which is nothing to a Redis.
const LOOK: Duration = Duration::from_millis(250);
/// For one operation. A store is there to save a token request; one that needs longer than this costs more
/// than it saves. A machine on which fifty processes start at once stands still for half of it.
pub(crate) const BOUND: Duration = Duration::from_secs(2);
