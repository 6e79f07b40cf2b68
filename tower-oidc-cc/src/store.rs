//! Token stores: one token for several processes, and the lease to request it.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::{
    borrow::Cow,
    error::Error,
    fmt,
    future::Future,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};
use tower_tds_outcome::Secrets;

use crate::{
    AccessToken, Credentials, TokenEndpoint,
    clock::{Clock, Timestamp},
    reply::Issued,
    state::Fetched,
};

#[cfg(feature = "file-store")]
pub(crate) mod file;
#[cfg(test)]
mod tests;

/// Shares a token between processes, so that all of them together make one token request.
///
/// Use it where many processes share one client: a file for processes on one machine, Redis or Valkey
/// for several machines. [`TokenSourceBuilder::store`](crate::TokenSourceBuilder::store) takes it. The
/// store is read before each token request, and written after a successful one. A call that finds a
/// valid token does not wait for the store.
///
/// A store that fails, takes longer than two seconds, or holds no usable token is skipped: the
/// process requests a token itself. A store holds the token in clear: restrict its readers, or
/// encrypt the bytes of [`StoredToken::as_bytes`].
///
/// A key contains the address of the endpoint, the client id and all values of
/// [`TokenSourceBuilder::parameter`](crate::TokenSourceBuilder::parameter), each with its length. It
/// does not contain the secret.
///
/// # Cancel safety
///
/// Each future is dropped after two seconds. A write that is interrupted must leave the old
/// entry or no entry: write a file beside the old one, and rename it.
///
/// # Examples
///
/// ```
/// use std::{collections::HashMap, error::Error, sync::Mutex, time::Duration};
/// use tokio::time::Instant;
/// use tower_oidc_cc::{StoredToken, TokenStore};
///
/// /// For the sources of one process. In Redis: GET, SET PXAT with DEL of the lease, SET NX PX.
/// #[derive(Default)]
/// struct Memory(Mutex<HashMap<String, StoredToken>>, Mutex<HashMap<String, Instant>>);
///
/// impl TokenStore for Memory {
///     async fn load(&self, key: &str) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
///         Ok(self.0.lock().map_err(|_| "poisoned")?.get(key).cloned())
///     }
///     async fn save(&self, key: &str, token: &StoredToken) -> Result<(), Box<dyn Error + Send + Sync>> {
///         self.0.lock().map_err(|_| "poisoned")?.insert(key.to_owned(), token.clone());
///         self.1.lock().map_err(|_| "poisoned")?.remove(key);
///         Ok(())
///     }
///     async fn lease(&self, key: &str, term: Duration) -> Result<bool, Box<dyn Error + Send + Sync>> {
///         let (mut leases, now) = (self.1.lock().map_err(|_| "poisoned")?, Instant::now());
///         let free = leases.get(key).is_none_or(|until| *until <= now);
///         if free { leases.insert(key.to_owned(), now + term); }
///         Ok(free)
///     }
/// }
/// # use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::Full;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn Error>> {
/// # let client = tower::service_fn(|_: Request<Full<Bytes>>| async {
/// #     let reply = r#"{"access_token":"abc","token_type":"Bearer","expires_in":86400}"#;
/// #     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(reply))))
/// # });
/// # let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
/// # let credentials = Credentials::new("id", "secret")?;
///
/// let tokens = TokenSource::builder(endpoint, credentials).store(Memory::default()).build(client);
/// tokens.ready().await?;
/// # Ok(())
/// # }
/// ```
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the token that was saved last under this key.
    ///
    /// # Errors
    ///
    /// Any failure. It is logged, and the store is skipped.
    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Option<StoredToken>, Box<dyn Error + Send + Sync>>> + Send;

    /// Saves a token under this key, and ends the lease of the key.
    ///
    /// The entry can be removed after [`StoredToken::expires_at`], by the wall clock.
    ///
    /// # Errors
    ///
    /// Any failure. It is logged, and the store is skipped.
    fn save(
        &self,
        key: &str,
        token: &StoredToken,
    ) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send;

    /// Takes the lease of this key for `term`, and returns whether it was free.
    ///
    /// The lease must end after `term`, so that another process can request a token if this one ends.
    /// If two processes hold the lease, both request a token, and there is no other harm.
    ///
    /// # Errors
    ///
    /// Any failure of the store. If another process holds the lease, return `false` and no error.
    fn lease(
        &self,
        key: &str,
        term: Duration,
    ) -> impl Future<Output = Result<bool, Box<dyn Error + Send + Sync>>> + Send;

    /// Gives back the lease before the end of its term, and returns whether it was given back.
    ///
    /// The default does nothing and returns `false`: this process keeps the lease for its next attempt.
    /// A process that was suspended may call this method after the term, when another process holds
    /// the lease. So mark each lease with its owner, such as a random value in Redis, and compare the
    /// mark. The method is also called from a `drop`, so spawn work that takes time.
    fn release(&self, key: &str) -> bool {
        let _ = key;
        false
    }
}

/// A token for a [`TokenStore`]: its bytes and its expiry.
///
/// `Debug` shows no token. Times are times of the wall clock, the only clock that two machines share.
#[derive(Clone)]
pub struct StoredToken {
    bytes: Vec<u8>,
    expires_at: SystemTime,
}

/// The content of the bytes. Times are milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    /// The key of the entry, to detect a store that returns another entry.
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    token: Cow<'a, str>,
    issued: u64,
    /// The life as the endpoint returned it.
    life: u64,
}

/// The store of one source: finds a token of another process, and saves one of this process. It takes
/// the lease before a token request.
pub(crate) struct Leases {
    store: Box<dyn Erased>,
    clock: Clock,
    secrets: Secrets,
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

/// The object-safe form of a [`TokenStore`].
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

// === impl StoredToken ===

impl StoredToken {
    /// Takes bytes that an earlier [`as_bytes`](Self::as_bytes) returned.
    ///
    /// This does not fail: a token of malformed bytes is skipped when it is used.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let expires_at = entry(&bytes)
            .and_then(|entry| time(entry.issued.saturating_add(entry.life)))
            .unwrap_or(UNIX_EPOCH);
        Self { bytes, expires_at }
    }

    /// The bytes to keep. They hold the token in clear.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The expiry of the token on the wall clock; 1970 if the bytes are malformed.
    #[must_use]
    pub fn expires_at(&self) -> SystemTime {
        self.expires_at
    }

    #[cfg(feature = "file-store")]
    pub(crate) fn is_for(&self, key: &str) -> bool {
        entry(&self.bytes).is_some_and(|entry| entry.key == key)
    }

    /// `None` for times outside of the clock's range.
    pub(crate) fn new(key: &str, token: &str, issued: SystemTime, life: Duration) -> Option<Self> {
        let life = life.min(LONGEST);
        let entry = Entry {
            key: key.into(),
            token: token.into(),
            issued: millis(issued.duration_since(UNIX_EPOCH).ok()?)?,
            life: millis(life)?,
        };
        Some(Self {
            bytes: serde_json::to_vec(&entry).ok()?,
            expires_at: issued.checked_add(life)?,
        })
    }

    /// `None` if the bytes are no entry of this key, or if the token has expired or is dated far in the
    /// future.
    pub(crate) fn read_at(&self, now: Timestamp, key: &str) -> Option<Issued> {
        let entry = entry(&self.bytes).filter(|entry| entry.key == key)?;
        let age = match now.wall.duration_since(time(entry.issued)?) {
            Ok(age) => age,
            Err(ahead) if ahead.duration() <= SKEW => Duration::ZERO,
            Err(_) => return None,
        };
        let life = Duration::from_millis(entry.life).min(LONGEST);
        let left = life.checked_sub(age).filter(|left| !left.is_zero())?;
        // The steady clock of a machine that started after the token was issued cannot show that time.
        // The life that is left then counts from now.
        let (sent, life) = now
            .checked_sub(age)
            .map_or((now, left), |sent| (sent, life));
        Some(Issued {
            token: AccessToken::new(&entry.token).ok()?,
            fetched: Fetched {
                sent,
                life,
                is_own: false,
            },
        })
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredToken")
            .field("bytes", &"[redacted]")
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

// === impl Leases ===

impl Leases {
    pub(crate) fn new(
        store: Box<dyn Erased>,
        clock: Clock,
        secrets: Secrets,
        term: Duration,
        endpoint: &TokenEndpoint,
        parameters: &[(String, String)],
    ) -> Self {
        Self {
            store,
            clock,
            secrets,
            term,
            kind: kind(endpoint, parameters),
            key: String::new(),
            leased: None,
        }
    }

    /// Returns a token of another process that this process prefers; `None` if it must request one.
    ///
    /// While another process holds the lease, this process waits for its token, for `LONGEST_WAIT` at
    /// most.
    pub(crate) async fn find(
        &mut self,
        credentials: &Credentials,
        prefers: impl Fn(&Issued) -> bool + Send,
    ) -> Option<Issued> {
        let key = push(self.kind.clone(), credentials.client_id());
        if key != self.key {
            self.release();
            (self.key, self.leased) = (key, None);
        }
        let give_up = self.clock.now().steady.checked_add(LONGEST_WAIT)?;
        loop {
            let found = bounded("load", &self.secrets, self.store.load(&self.key)).await?;
            // The clock is read after the store has answered, because a token ages meanwhile.
            let now = self.clock.now();
            let issued = found.and_then(|stored| stored.read_at(now, &self.key));
            if let Some(issued) = issued.filter(&prefers) {
                self.release();
                return Some(issued);
            }
            let now = now.steady;
            if now >= give_up || self.leased.is_some_and(|until| now < until) {
                return None;
            }
            if bounded(
                "lease",
                &self.secrets,
                self.store.lease(&self.key, self.term),
            )
            .await?
            {
                // Counted from before the request, so that this process never assumes a lease that has
                // ended. The loop reads again, because the last holder may have saved a token since.
                self.leased = now.checked_add(self.term);
            } else {
                sleep(LOAD_EVERY).await;
            }
        }
    }

    /// Saves a token of this process, or gives back the lease if there is none.
    pub(crate) async fn save(&mut self, issued: Option<Issued>) {
        let stored = issued.and_then(|Issued { token, fetched }| {
            StoredToken::new(&self.key, token.secret(), fetched.sent.wall, fetched.life)
        });
        if let Some(stored) = stored
            && let Some(()) =
                bounded("save", &self.secrets, self.store.save(&self.key, &stored)).await
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

/// Runs one operation with a timeout. Logs a failure and returns `None`.
async fn bounded<T>(operation: &str, secrets: &Secrets, work: Work<'_, T>) -> Option<T> {
    match timeout(OPERATION_TIMEOUT, work).await {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(error)) => {
            let error = secrets.line(&error.to_string());
            tracing::warn!(operation, error, "the token store failed");
        }
        Err(_) => tracing::warn!(operation, "the token store took too long"),
    }
    None
}

/// Returns the key without the client id: the endpoint and the parameters.
fn kind(endpoint: &TokenEndpoint, parameters: &[(String, String)]) -> String {
    let uri = endpoint.uri().to_string();
    let fields = parameters
        .iter()
        .flat_map(|(name, value)| [name.as_str(), value]);
    let parts = [uri.as_str()].into_iter().chain(fields);
    parts.fold(String::from("tower-oidc-cc"), push)
}

/// Appends a part to a key, after its length, so that different parts never make the same key.
fn push(name: String, part: &str) -> String {
    format!("{name} {}:{part}", part.len())
}

fn entry(bytes: &[u8]) -> Option<Entry<'_>> {
    serde_json::from_slice(bytes).ok()
}

fn millis(time: Duration) -> Option<u64> {
    u64::try_from(time.as_millis()).ok()
}

fn time(millis: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// The time between two reads of the store while another process holds the lease. Fifty waiting
/// processes make two hundred reads a second, a small load for Redis.
const LOAD_EVERY: Duration = Duration::from_millis(250);
/// The timeout of one operation. A slower store costs more than the token request that it saves.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);
/// The wait for a token of another process: two leases and one healthy token request. If a process is
/// stopped while it holds the lease, another one can take the next lease within this time.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(12);
/// The clocks of two synchronised machines agree within milliseconds. A token that is dated further in
/// the future than this comes from a wrong clock.
const SKEW: Duration = Duration::from_secs(60);
/// The longest life of an entry. A token that lives longer is requested once a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
