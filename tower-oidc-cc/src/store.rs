//! Token stores: one token for several processes, and one process that requests it.

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
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tower_tds_outcome::Secrets;

use crate::{
    clock::{Clock, Timestamp},
    endpoint::TokenEndpoint,
    error::{ErrorKind, TokenError},
    reply::{AccessToken, Issued},
    state::Bearer,
};

#[cfg(feature = "file-store")]
pub(crate) mod file;
#[cfg(test)]
mod tests;

/// Shares a token between your processes, so that all of them together make one token request.
///
/// Use it where many processes share one client: a file for processes on one machine, Redis or Valkey for several
/// machines. Pass it to [`TokenSourceBuilder::store`](crate::TokenSourceBuilder::store). The store is read before each
/// token request, and written after it. Calls that find a valid token do not wait for it.
///
/// If your store fails, or takes twelve seconds for a load or two for a save, it is skipped, and the process requests a
/// token itself: bound your own operations, if they may hang. Tokens are stored in plain text: restrict the readers, or
/// encrypt the bytes of [`StoredToken::as_bytes`].
///
/// A failure of the endpoint is in the entry as well, and counts while no token there is valid. After a `Retry-After`, no
/// other process sends a request before its end (five minutes at most). Refused credentials are sent again after a
/// minute, and another secret at once.
///
/// Keys contain the address of the endpoint, the client id and all values of
/// [`TokenSourceBuilder::field`](crate::TokenSourceBuilder::field), each with its length, but
/// not the secret.
///
/// # Turns
///
/// If a load finds no entry that is enough, the process requests a token and saves the result, whatever it is. If others
/// would do so at the same time, let their loads wait until then: take a lock in `load`, and end it in `save`. It must
/// also end with its process, or after a few seconds. `FileStore` locks a file; in Redis, use SET with NX and PX. A store
/// without turns, like the one below, is correct, and its processes make more requests.
///
/// # Cancel safety
///
/// A future that takes too long is dropped. A write that is interrupted must leave the old entry or none: if you write
/// files, write the new one beside the old one, and rename it.
///
/// # Examples
///
/// ```
/// use std::{collections::HashMap, error::Error, sync::Mutex};
/// use tower_oidc_cc::{StoredToken, TokenStore};
///
/// /// Serves the sources of one process.
/// #[derive(Default)]
/// struct Memory(Mutex<HashMap<String, StoredToken>>);
///
/// impl TokenStore for Memory {
///     async fn load(
///         &self,
///         key: &str,
///         _is_enough: &(dyn Fn(&StoredToken) -> bool + Sync),
///     ) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
///         Ok(self.0.lock().map_err(|_| "poisoned")?.get(key).cloned())
///     }
///     async fn save(&self, key: &str, entry: &StoredToken) -> Result<(), Box<dyn Error + Send + Sync>> {
///         self.0.lock().map_err(|_| "poisoned")?.insert(key.to_owned(), entry.clone());
///         Ok(())
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
    /// Returns the entry that was saved last under this key.
    ///
    /// If it is not enough, wait here while another process requests a token, and return what that one saved. Otherwise
    /// the process that gets the entry takes its [turn](Self#turns).
    ///
    /// # Errors
    ///
    /// Return any failure: it is logged, and the store is skipped.
    fn load(
        &self,
        key: &str,
        is_enough: &(dyn Fn(&StoredToken) -> bool + Sync),
    ) -> impl Future<Output = Result<Option<StoredToken>, Box<dyn Error + Send + Sync>>> + Send;

    /// Saves an entry under this key, and ends the [turn](Self#turns) of the process.
    ///
    /// You can remove the entry after [`StoredToken::expires_at`], by the wall clock.
    ///
    /// # Errors
    ///
    /// Return any failure: it is logged, and only this process uses the token.
    fn save(
        &self,
        key: &str,
        entry: &StoredToken,
    ) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send;
}

/// Entry for a [`TokenStore`]: its bytes and its expiry. It is a token, and the failure of the request for a newer one.
///
/// `Debug` shows no token. Times are those of the wall clock, because two machines share no other.
///
/// # Examples
///
/// ```
/// use std::time::SystemTime;
/// use tower_oidc_cc::StoredToken;
///
/// // A store that keeps bytes saves `as_bytes` until `expires_at`.
/// let damaged = StoredToken::from_bytes(*b"half of an ent");
/// assert_eq!(damaged.as_bytes(), b"half of an ent");
/// assert_eq!(damaged.expires_at(), SystemTime::UNIX_EPOCH); // no token: the source requests one
/// ```
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
    /// Empty if there is none.
    #[serde(borrow)]
    token: Cow<'a, str>,
    issued: u64,
    /// Life as the endpoint returned it.
    life: u64,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    said: Option<Said<'a>>,
}

/// Failure of the endpoint, so that other processes send no request before it is over.
#[derive(Serialize, Deserialize)]
struct Said<'a> {
    /// Digest of the credentials: corrected ones are sent at once.
    digest: u16,
    status: u16,
    is_refusal: bool,
    #[serde(borrow)]
    words: Option<Cow<'a, str>>,
    at: u64,
    wait: u64,
}

/// The store of a source.
pub(crate) struct BoxStore(Box<dyn Erased>);

/// Parts of a source that a flight needs.
pub(crate) struct FlightContext<'a> {
    pub(crate) key: String,
    pub(crate) digest: u16,
    pub(crate) newest: Option<&'a Bearer>,
    pub(crate) clock: &'a Clock,
    pub(crate) secrets: &'a Secrets,
}

/// One operation of a store.
type Work<'a, T> = BoxFuture<'a, Result<T, Box<dyn Error + Send + Sync>>>;
type IsEnough<'a> = &'a (dyn Fn(&StoredToken) -> bool + Sync);

/// Object-safe form of a [`TokenStore`].
trait Erased: Send + Sync {
    fn load<'a>(&'a self, key: &'a str, is_enough: IsEnough<'a>) -> Work<'a, Option<StoredToken>>;
    fn save<'a>(&'a self, key: &'a str, entry: &'a StoredToken) -> Work<'a, ()>;
}

impl<S: TokenStore> Erased for S {
    fn load<'a>(&'a self, key: &'a str, is_enough: IsEnough<'a>) -> Work<'a, Option<StoredToken>> {
        Box::pin(TokenStore::load(self, key, is_enough))
    }

    fn save<'a>(&'a self, key: &'a str, entry: &'a StoredToken) -> Work<'a, ()> {
        Box::pin(TokenStore::save(self, key, entry))
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
        let entry = serde_json::from_slice::<Entry<'_>>(&bytes).ok();
        let expires_at = entry.and_then(|entry| time(entry.end()));
        let expires_at = expires_at.unwrap_or(UNIX_EPOCH);
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

    /// Reads an entry of this key.
    fn entry(&self, key: &str) -> Option<Entry<'_>> {
        let entry = serde_json::from_slice::<Entry<'_>>(&self.bytes).ok();
        entry.filter(|entry| entry.key == key)
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredToken")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

// === impl Entry ===

impl<'a> Entry<'a> {
    /// Creates the entry of a token; `None` for times outside of the clock's range.
    fn new(key: &'a str, issued: &'a Issued) -> Option<Self> {
        Some(Self {
            key: key.into(),
            token: issued.token.secret().into(),
            issued: millis(issued.sent.wall.duration_since(UNIX_EPOCH).ok()?)?,
            life: millis(issued.life.min(LONGEST))?,
            said: None,
        })
    }

    fn end(&self) -> u64 {
        let said = self.said.as_ref();
        let said = said.map_or(0, |said| said.at.saturating_add(said.wait));
        self.issued.saturating_add(self.life).max(said)
    }

    /// Returns the token, unless it has expired or is dated far in the future.
    fn token_at(&self, now: Timestamp) -> Option<Issued> {
        let age = match now.wall.duration_since(time(self.issued)?) {
            Ok(age) => age,
            Err(ahead) if ahead.duration() <= SKEW => Duration::ZERO,
            Err(_) => return None,
        };
        let life = Duration::from_millis(self.life).min(LONGEST);
        let left = life.checked_sub(age).filter(|left| !left.is_zero())?;
        // If the machine started after the token was issued, its steady clock cannot show that time, so
        // the life that is left counts from now.
        let (sent, life) = now
            .checked_sub(age)
            .map_or((now, left), |sent| (sent, life));
        Some(Issued {
            token: AccessToken::new(&self.token).ok()?,
            sent,
            life,
            is_own: false,
        })
    }
}

// === impl Said ===

impl<'a> Said<'a> {
    /// Creates it from an error of the endpoint; `None` if that has no wait.
    fn new(digest: u16, error: &'a TokenError, now: SystemTime) -> Option<Self> {
        let (status, is_refusal, words) = error.said()?;
        let refusal = is_refusal.then_some(REFUSED);
        let wait = error.retry_after().max(refusal)?.min(LONGEST_SAID);
        Some(Self {
            digest,
            status: status.as_u16(),
            is_refusal,
            words: words.map(Cow::from),
            at: millis(now.duration_since(UNIX_EPOCH).ok()?)?,
            wait: millis(wait)?,
        })
    }

    /// Returns the failure of these credentials, with the wait that is left. A clock that was set can end it,
    /// but not extend it.
    fn error_at(&self, now: SystemTime, digest: u16) -> Option<TokenError> {
        let age = now.duration_since(time(self.at)?).ok()?;
        let wait = Duration::from_millis(self.wait).min(LONGEST_SAID);
        let left = wait.checked_sub(age).filter(|left| !left.is_zero())?;
        let status = StatusCode::from_u16(self.status).ok()?;
        let error = TokenError::new(match self.is_refusal {
            true => ErrorKind::Rejected(status),
            false => ErrorKind::Unavailable(status),
        });
        let error = match &self.words {
            Some(words) => error.because(&**words),
            None => error,
        };
        (self.digest == digest).then(|| error.with_retry_after(left))
    }
}

// === impl BoxStore ===

impl BoxStore {
    pub(crate) fn new(store: impl TokenStore) -> Self {
        Self(Box::new(store))
    }

    /// Returns the token of another process, or its failure. Otherwise it is the turn of this process,
    /// which awaits `asked` and saves its result.
    ///
    /// It saves before it returns, because a program may end as soon as it has a token.
    pub(crate) async fn share(
        &self,
        context: &FlightContext<'_>,
        asked: impl Future<Output = Result<Issued, TokenError>>,
    ) -> Result<Issued, TokenError> {
        let key = &*context.key;
        let is_enough = |stored: &StoredToken| context.answer(stored).is_some();
        let load = self.0.load(key, &is_enough);
        let loaded = context.bounded("load", LONGEST_LOAD, load).await;
        let found = loaded.as_ref().and_then(Option::as_ref);
        if let Some(answer) = found.and_then(|stored| context.answer(stored)) {
            return answer;
        }
        let fetched = asked.await;
        let entry = match &fetched {
            Ok(issued) => Entry::new(key, issued),
            Err(error) if loaded.is_some() => Some(context.failed(found, error)),
            Err(_) => None,
        };
        if let Some(entry) = entry
            && let Ok(bytes) = serde_json::to_vec(&entry)
        {
            let stored = StoredToken::from_bytes(bytes);
            let save = self.0.save(key, &stored);
            context.bounded("save", LONGEST_SAVE, save).await;
        }
        fetched
    }
}

// === impl FlightContext ===

impl FlightContext<'_> {
    /// Returns what an entry answers to this process: a token that is no older than its own, or a failure.
    fn answer(&self, stored: &StoredToken) -> Option<Result<Issued, TokenError>> {
        let (now, entry) = (self.clock.now(), stored.entry(&self.key)?);
        // The store must not bring back an older token in place of one that was refused.
        let is_newer = |issued: &Issued| {
            self.newest.is_none_or(|newest| {
                let is_same = newest.token.header() == issued.token.header();
                !is_same && issued.sent.wall >= newest.sent.wall
            })
        };
        if let Some(mut issued) = entry.token_at(now).filter(is_newer) {
            issued.token.hold(self.secrets);
            return Some(Ok(issued));
        }
        entry.said?.error_at(now.wall, self.digest).map(Err)
    }

    /// Returns the entry after a failure: the token that is there, if it is valid, and the failure.
    fn failed<'a>(&'a self, found: Option<&'a StoredToken>, error: &'a TokenError) -> Entry<'a> {
        let now = self.clock.now();
        let found = found.and_then(|stored| stored.entry(&self.key));
        let mut entry = found
            .filter(|entry| entry.token_at(now).is_some())
            .unwrap_or_else(|| Entry {
                key: Cow::from(&self.key),
                token: Cow::default(),
                issued: 0,
                life: 0,
                said: None,
            });
        entry.said = Said::new(self.digest, error, now.wall);
        entry
    }

    /// Runs one operation with a timeout. Logs a failure and returns `None`.
    async fn bounded<T>(&self, operation: &str, longest: Duration, work: Work<'_, T>) -> Option<T> {
        match timeout(longest, work).await {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => {
                let error = self.secrets.line(&error.to_string());
                tracing::warn!(operation, error, "the token store failed");
            }
            Err(_) => tracing::warn!(operation, "the token store took too long"),
        }
        None
    }
}

/// Returns the key of the tokens of a client: each part after its length, so that different parts never make the same key.
pub(crate) fn key(
    endpoint: &TokenEndpoint,
    fields: &[(String, String)],
    client_id: &str,
) -> String {
    let uri = endpoint.uri().to_string();
    let fields = fields
        .iter()
        .flat_map(|(name, value)| [name.as_str(), value]);
    let parts = [uri.as_str()].into_iter().chain(fields).chain([client_id]);
    parts.fold(String::from("tower-oidc-cc"), |key, part| {
        format!("{key} {}:{part}", part.len())
    })
}

fn millis(time: Duration) -> Option<u64> {
    u64::try_from(time.as_millis()).ok()
}

fn time(millis: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// Wait that processes share after refused credentials: the shortest backoff of one.
const REFUSED: Duration = Duration::from_secs(60);
/// Longest wait that is shared.
const LONGEST_SAID: Duration = Duration::from_secs(300);
/// Longest wait for a token of another process: the longest token request of that one, and its save.
const LONGEST_LOAD: Duration = Duration::from_secs(12);
/// If a store is slower, it costs more than the token request that it saves.
const LONGEST_SAVE: Duration = Duration::from_secs(2);
/// Clocks of synchronised machines agree within milliseconds, so a token that is dated further in the
/// future than this comes from a wrong clock.
const SKEW: Duration = Duration::from_secs(60);
/// Longest life of an entry. If a token lives longer, it is requested once a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
