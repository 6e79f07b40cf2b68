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
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    clock::Timestamp,
    credentials::Credentials,
    endpoint::TokenEndpoint,
    error::{Kind, TokenError},
    reply::{self, AccessToken, Fetched, Issued},
    request::{Fetch, Settings},
    state::Current,
};

#[cfg(feature = "file-store")]
pub(crate) mod file;
#[cfg(test)]
mod tests;

/// Shares a token between your processes, so that all of them together make one token request.
///
/// Use it where many processes share one client: a file for processes on one machine, Redis or Valkey for several
/// machines. Pass it to [`TokenSourceBuilder::store`](crate::TokenSourceBuilder::store). The store is read before each
/// token request, and written after a successful one. Calls that find a valid token do not wait for it.
///
/// If your store fails or takes longer than two seconds, it is skipped, and the process requests a token itself. If it
/// holds no usable token, the process that gets the [lease](Self::lease) requests one, and the others wait for it, for
/// twelve seconds at most. Tokens are stored in plain text: restrict the readers, or encrypt the bytes of
/// [`StoredToken::as_bytes`].
///
/// What the endpoint said in place of a token is shared too, as an entry of its own: after a `Retry-After`, no other process
/// asks before its end (five minutes at most), and credentials that were refused are sent again after a minute. Another
/// secret is sent at once.
///
/// Keys contain the address of the endpoint, the client id and all values of
/// [`TokenSourceBuilder::parameter`](crate::TokenSourceBuilder::parameter), each with its length, but
/// not the secret.
///
/// # Cancel safety
///
/// Each future is dropped after two seconds. A write that is interrupted must leave the old entry or none: if you write
/// files, write the new one beside the old one, and rename it.
///
/// # Examples
///
/// ```
/// use std::{collections::HashMap, error::Error, sync::Mutex, time::Duration};
/// use tokio::time::Instant;
/// use tower_oidc_cc::{StoredToken, TokenStore};
///
/// /// Serves the sources of one process. In Redis, `load` is GET, `save` is SET with PXAT and a DEL
/// /// of the lease, and `lease` is SET with NX and PX.
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
    /// Return any failure: it is logged, and the store is skipped.
    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Option<StoredToken>, Box<dyn Error + Send + Sync>>> + Send;

    /// Saves a token under this key, and ends the lease of the key.
    ///
    /// You can remove the entry after [`StoredToken::expires_at`], by the wall clock.
    ///
    /// # Errors
    ///
    /// Return any failure: it is logged, and only this process uses the token.
    fn save(
        &self,
        key: &str,
        token: &StoredToken,
    ) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send;

    /// Takes the lease of this key for `term`, and returns whether it was free.
    ///
    /// End the lease after `term`, so that another process can request a token if this one ends. If two processes hold
    /// it, both request a token, which does no other harm.
    ///
    /// # Errors
    ///
    /// Return any failure of the store. If another process holds the lease, return `false` and no error.
    fn lease(
        &self,
        key: &str,
        term: Duration,
    ) -> impl Future<Output = Result<bool, Box<dyn Error + Send + Sync>>> + Send;

    /// Gives back the lease before the end of its term, and returns whether it was given back.
    ///
    /// By default this does nothing and returns `false`: the process keeps the lease for its next
    /// attempt. If you implement it, mark each lease with its owner, such as a random value in Redis,
    /// and compare the mark, because a process that was suspended may call this after the term, when
    /// another one holds the lease. It is also called from a `drop`, so spawn work that takes time.
    fn release(&self, key: &str) -> bool {
        let _ = key;
        false
    }
}

/// Entry for a [`TokenStore`]: its bytes and its expiry. It is a token, or what the endpoint said in place of one.
///
/// `Debug` shows no token. Times are those of the wall clock, because two machines share no other.
#[derive(Clone)]
pub struct StoredToken {
    bytes: Vec<u8>,
    expires_at: SystemTime,
}

/// Content of the bytes. Times are milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    /// Key of the entry, to detect a store that returns another entry.
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    token: Cow<'a, str>,
    issued: u64,
    /// Life as the endpoint returned it.
    life: u64,
}

/// What the endpoint said when it gave no token, so that other processes do not ask before it is over. It has a key of
/// its own, so a token wins over it.
#[derive(Serialize, Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    /// Digest of the credentials: corrected ones are sent at once.
    digest: u16,
    status: u16,
    is_refusal: bool,
    code: Option<Cow<'a, str>>,
    words: Option<Cow<'a, str>>,
    at: u64,
    wait: u64,
}

/// Fetches through a store: looks for the token of another process first, takes the lease before a token request, and
/// saves the token that it gets.
pub(crate) struct Stored<F> {
    inner: F,
    store: Box<dyn Erased>,
    /// Key without the client id: the endpoint and the parameters.
    kind: String,
    /// Lease of this process, until it is given back. The mutex guards only this field.
    lease: Mutex<Option<Lease>>,
}

struct Lease {
    key: String,
    until: Instant,
}

/// One operation of a store.
type Work<'a, T> = BoxFuture<'a, Result<T, Box<dyn Error + Send + Sync>>>;

/// Object-safe form of a [`TokenStore`].
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
    /// This does not fail: if the bytes are malformed, the source ignores them and requests a token.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let expires_at = entry(&bytes)
            .and_then(|entry| time(entry.issued.saturating_add(entry.life)))
            .unwrap_or(UNIX_EPOCH);
        Self { bytes, expires_at }
    }

    /// Returns the bytes to keep, with the token in plain text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the expiry of the entry on the wall clock; 1970 if it was made from bytes that are no token.
    #[must_use]
    pub fn expires_at(&self) -> SystemTime {
        self.expires_at
    }

    #[cfg(feature = "file-store")]
    pub(crate) fn is_for(&self, key: &str) -> bool {
        #[derive(Deserialize)]
        struct Keyed<'a> {
            #[serde(borrow)]
            key: Cow<'a, str>,
        }
        let keyed = serde_json::from_slice::<Keyed<'_>>(&self.bytes);
        keyed.is_ok_and(|keyed| keyed.key == key)
    }

    /// Creates an entry for an error of the endpoint; `None` if it has not told how long to wait.
    fn said(key: &str, digest: u16, error: &TokenError, now: SystemTime) -> Option<Self> {
        let (status, is_refusal, words) = error.said()?;
        let refusal = is_refusal.then_some(REFUSED);
        let wait = error.retry_after().max(refusal)?.min(LONGEST_SAID);
        let said = Said {
            key: key.into(),
            digest,
            status: status.as_u16(),
            is_refusal,
            code: error.oauth_error().map(Cow::from),
            words: words.map(Cow::from),
            at: millis(now.duration_since(UNIX_EPOCH).ok()?)?,
            wait: millis(wait)?,
        };
        Some(Self {
            bytes: serde_json::to_vec(&said).ok()?,
            expires_at: now.checked_add(wait)?,
        })
    }

    /// Reads what the endpoint said to these credentials, with the wait that is left. A clock that was set can end it, but
    /// not extend it.
    fn said_at(&self, now: SystemTime, key: &str, digest: u16) -> Option<TokenError> {
        let said: Said<'_> = serde_json::from_slice(&self.bytes).ok()?;
        let age = now.duration_since(time(said.at)?).ok()?;
        let left = Duration::from_millis(said.wait)
            .min(LONGEST_SAID)
            .checked_sub(age)?;
        let status = StatusCode::from_u16(said.status).ok()?;
        let kind = if said.is_refusal {
            Kind::Rejected(status, said.code.and_then(|code| reply::code(&code)))
        } else {
            Kind::Unavailable(status)
        };
        let is_in_force = said.key == key && said.digest == digest && !left.is_zero();
        let error = TokenError::new(kind).with_words(said.words.map(Cow::into_owned));
        is_in_force.then(|| error.with_retry_after(left))
    }

    /// Creates an entry; `None` for times outside of the clock's range.
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

    /// Reads an entry of this key. Returns `None` if the bytes are not one, or if the token has expired or is dated far
    /// in the future.
    pub(crate) fn read_at(&self, now: Timestamp, key: &str) -> Option<Issued> {
        let entry = entry(&self.bytes).filter(|entry| entry.key == key)?;
        let age = match now.wall.duration_since(time(entry.issued)?) {
            Ok(age) => age,
            Err(ahead) if ahead.duration() <= SKEW => Duration::ZERO,
            Err(_) => return None,
        };
        let life = Duration::from_millis(entry.life).min(LONGEST);
        let left = life.checked_sub(age).filter(|left| !left.is_zero())?;
        // If the machine started after the token was issued, its steady clock cannot show that time, so
        // the life that is left counts from now.
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

// === impl Stored ===

impl<F: Fetch> Stored<F> {
    pub(crate) fn new(inner: F, store: Box<dyn Erased>) -> Self {
        let Settings {
            endpoint,
            parameters,
            ..
        } = inner.settings();
        let kind = kind(endpoint, parameters);
        Self {
            inner,
            store,
            kind,
            lease: Mutex::default(),
        }
    }

    /// Returns a token of another process that is better than the one in use; `None` if this process
    /// must request one.
    ///
    /// While another process holds the lease, this process waits for its token, for `LONGEST_WAIT` at
    /// most. It fails with what the endpoint said to another process.
    async fn find(
        &self,
        key: &str,
        digest: u16,
        current: Option<&Current>,
    ) -> Option<Result<Issued, TokenError>> {
        let clock = &self.inner.settings().clock;
        let give_up = clock.now().steady.checked_add(LONGEST_WAIT)?;
        let said_key = format!("{SAID}{key}");
        loop {
            let found = self.bounded("load", self.store.load(key)).await?;
            // Read after the store has answered, because a token ages meanwhile.
            let now = clock.now();
            let issued = found.and_then(|stored| stored.read_at(now, key));
            if let Some(issued) = issued.filter(|it| Current::is_worse_than(current, it, now)) {
                self.release();
                return Some(Ok(issued));
            }
            let said = self.bounded("load", self.store.load(&said_key)).await?;
            let now = clock.now();
            if let Some(error) = said.and_then(|it| it.said_at(now.wall, &said_key, digest)) {
                self.release();
                return Some(Err(error.at(self.inner.settings().uri())));
            }
            let now = now.steady;
            let is_leased = |lease: &Lease| lease.key == key && now < lease.until;
            if now >= give_up || self.lease().as_ref().is_some_and(is_leased) {
                return None;
            }
            if self.bounded("lease", self.store.lease(key, TERM)).await? {
                // Counted from before the request, so that this process never assumes a lease that has
                // ended. The loop reads again, because the last holder may have saved a token since.
                let until = now.checked_add(TERM)?;
                let key = key.to_owned();
                *self.lease() = Some(Lease { key, until });
            } else {
                sleep(LOAD_EVERY).await;
            }
        }
    }

    /// Runs one operation with a timeout. Logs a failure and returns `None`.
    async fn bounded<T>(&self, operation: &str, work: Work<'_, T>) -> Option<T> {
        match timeout(OPERATION_TIMEOUT, work).await {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => {
                let secrets = self.inner.settings().provider.secrets();
                let error = secrets.line(&error.to_string());
                tracing::warn!(operation, error, "the token store failed");
            }
            Err(_) => tracing::warn!(operation, "the token store took too long"),
        }
        None
    }

    /// Saves a token of this process or what the endpoint said, and gives back the lease.
    async fn save(&self, key: &str, digest: u16, fetched: &Result<Issued, TokenError>) {
        let stored = match fetched {
            Ok(Issued { token, fetched }) => {
                StoredToken::new(key, token.secret(), fetched.sent.wall, fetched.life)
            }
            Err(error) => {
                let key = format!("{SAID}{key}");
                let now = self.inner.settings().clock.wall();
                if let Some(said) = StoredToken::said(&key, digest, error, now) {
                    self.bounded("save", self.store.save(&key, &said)).await;
                }
                None
            }
        };
        if let Some(stored) = stored
            && let Some(()) = self.bounded("save", self.store.save(key, &stored)).await
        {
            *self.lease() = None;
        }
        self.release();
    }
}

impl<F> Stored<F> {
    /// Gives back the lease, if this process holds one.
    fn release(&self) {
        let mut lease = self.lease();
        lease.take_if(|lease| self.store.release(&lease.key));
    }

    fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fetch> Fetch for Stored<F> {
    /// Saves the token before it returns it, because a program may end as soon as it has a token.
    fn fetch<'a>(
        &'a self,
        credentials: &'a Credentials,
        current: Option<Current>,
    ) -> BoxFuture<'a, Result<Issued, TokenError>> {
        let fetched = async move {
            let key = push(self.kind.clone(), credentials.client_id());
            if self.lease().as_ref().is_some_and(|lease| lease.key != key) {
                self.release();
            }
            let digest = credentials.digest();
            if let Some(found) = self.find(&key, digest, current.as_ref()).await {
                return found;
            }
            let fetched = self.inner.fetch(credentials, current).await;
            // If the store panics, nothing is saved.
            let saved = AssertUnwindSafe(self.save(&key, digest, &fetched));
            drop(saved.catch_unwind().await);
            fetched
        };
        fetched.boxed()
    }

    fn longest(&self) -> Duration {
        let operations = OPERATION_TIMEOUT.saturating_mul(4);
        let store = LONGEST_WAIT.saturating_add(operations);
        self.inner.longest().saturating_add(store)
    }

    fn settings(&self) -> &Settings {
        self.inner.settings()
    }
}

/// Gives back the lease, because other processes would wait for one that outlives its source.
impl<F> Drop for Stored<F> {
    fn drop(&mut self) {
        self.release();
    }
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

/// Start of the key of what the endpoint said. Keys of tokens begin with the name of this crate.
pub(crate) const SAID: &str = "said to ";
/// Wait that processes share after refused credentials: the shortest backoff of one.
const REFUSED: Duration = Duration::from_secs(60);
/// Longest wait that is shared.
const LONGEST_SAID: Duration = Duration::from_secs(300);
/// Time between two reads of the store while another process holds the lease. Fifty waiting processes
/// make two hundred reads a second, a small load for Redis.
const LOAD_EVERY: Duration = Duration::from_millis(250);
/// Term of a lease. Healthy endpoints answer sooner, and a slower one gets one request every five
/// seconds. If a process is stopped while it holds the lease, the others are delayed by this time.
const TERM: Duration = Duration::from_secs(5);
/// Timeout of one operation. If the store is slower, it costs more than the token request that it
/// saves.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);
/// Wait for a token of another process: two leases and one healthy token request. If a process is
/// stopped while it holds the lease, another one can take the next lease within this time.
const LONGEST_WAIT: Duration = Duration::from_secs(12);
/// Clocks of synchronised machines agree within milliseconds, so a token that is dated further in the
/// future than this comes from a wrong clock.
const SKEW: Duration = Duration::from_secs(60);
/// Longest life of an entry. If a token lives longer, it is requested once a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
