//! One token for all: a [`TokenStore`] in Redis or Valkey whose entries are sealed.

use std::{
    error::Error,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use chacha20poly1305::aead::Generate as _;
use redis::{
    AsyncConnectionConfig, Client, RedisError, RedisResult, Script, aio::MultiplexedConnection, cmd,
};
use tokio::{runtime::Handle, time::Instant};
use tower_oidc_cc::{StoredToken, TokenStore};

use self::seal::Seal;
use crate::tls;

mod seal;

/// Keeps one token for all members of a fleet in Redis or Valkey, sealed with the client secret.
///
/// Fifty processes that start at once make one token request, and so does their renewal: one takes
/// the lease and asks, the others find its token. Give each
/// [`TokenSource`](tower_oidc_cc::TokenSource) one of its own. It needs Redis 6.2 or Valkey 7.2, and
/// of a cluster a node that has the fleet's slot.
///
/// # What lies in the store
///
/// | key | value | until |
/// |---|---|---|
/// | `{fleet}:token:NAME` | the token, sealed | it expires |
/// | `{fleet}:token:NAME:lease` | 16 random bytes of the member that asks | a token request may take |
///
/// `NAME` is 32 hexadecimal digits, derived from the client secret, the endpoint, the client id and
/// all that is asked for; of another secret it is another, so that members before and after a
/// rotation of the secret do not disturb each other. The value is sealed by XChaCha20-Poly1305, under
/// a key that is derived likewise (HKDF-SHA256): who reads the store, its dumps or its replicas has
/// neither the token nor what it is for, and the seal is as hard to open as the secret is to guess.
/// Who writes to it can end the sharing, and put back a token that lay there; not one of their own.
///
/// # Times
///
/// A token goes at its expiry, by the store's clock; and one that is still there is believed no
/// longer than the sealed bytes say, by the clock of this machine. An operation takes 900 ms for a
/// connection and as long for each answer; the connection serves for five seconds after its last
/// answer, which is a flight: the next one, hours later, does not depend on what a firewall or a
/// restart left of it.
///
/// # Errors
///
/// None that a call sees. A store that is away, hangs or is empty is told to `tracing` as a warning,
/// and this process asks for itself, within its own
/// [budget](tower_oidc_cc::TokenSourceBuilder::budget). So it does without a secret: with an empty
/// one nothing is stored. A value that does not open is as none, and a warning too.
///
/// An ACL for it is `~{fleet}:token:* +getrange +set +get +del +evalsha +script|load`.
///
/// # Cancel safety
///
/// Each operation is one command or one script: a future that is dropped leaves all of it done or
/// nothing. A lease whose answer was not waited for ends by itself.
///
/// # Examples
///
/// ```no_run
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};
/// use tower_tds_fleet::{RedisTokens, redis};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = tower::service_fn(|_: Request<Full<Bytes>>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::new())))
/// # });
/// let secret = std::env::var("TDS_CLIENT_SECRET")?;
/// let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
/// let redis = redis::Client::open("redis://127.0.0.1/")?;
///
/// let tokens = TokenSource::builder(endpoint, Credentials::new("my-client", &secret)?)
///     .store(RedisTokens::new(redis, "my-fleet", &secret))
///     .build(client);
/// tokens.ready().await?;
/// # Ok(())
/// # }
/// ```
pub struct RedisTokens {
    fleet: String,
    seal: Option<Seal>,
    connection: Arc<Connection>,
    /// Of the lease that was asked for last, be it had or not: scripts compare it.
    mark: Mutex<Mark>,
    /// A value that did not open has been told of.
    warned: AtomicBool,
    put: Script,
    end: Script,
}

/// The way to the store.
struct Connection {
    client: Client,
    /// With the time of its last answer. Guards that alone; nothing is awaited under it.
    kept: Mutex<Option<(MultiplexedConnection, Instant)>>,
}

/// Tells the lease of one member, and of one flight, from all others.
type Mark = [u8; 16];

// === impl RedisTokens ===

impl RedisTokens {
    /// Names the store, the fleet and the secret that its tokens are sealed with, which all members
    /// have: the client secret, without the white space around it.
    ///
    /// It connects when there is something to ask. `rediss://` needs the feature `ring` or
    /// `aws-lc-rs`, or `tls` and a `CryptoProvider` that the program has installed.
    #[must_use]
    pub fn new(client: Client, fleet: impl Into<String>, client_secret: &str) -> Self {
        Self {
            fleet: fleet.into(),
            seal: Seal::new(client_secret.trim()),
            connection: Arc::new(Connection {
                client,
                kept: Mutex::default(),
            }),
            mark: Mutex::default(),
            warned: AtomicBool::new(false),
            put: Script::new(PUT),
            end: Script::new(END),
        }
    }

    fn seal(&self) -> Result<&Seal, &'static str> {
        let seal = self.seal.as_ref();
        seal.ok_or("there is no client secret to seal the token with")
    }

    /// Where the token lies, and where its lease. The braces are Redis' hash tag: what belongs to
    /// one fleet lies in one slot.
    fn names(&self, seal: &Seal, key: &str) -> (String, String) {
        let token = format!("{{{}}}:token:{}", self.fleet, seal.name(key));
        let lease = format!("{token}:lease");
        (token, lease)
    }

    fn mark(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenStore for RedisTokens {
    async fn load(&self, key: &str) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
        let seal = self.seal()?;
        let (token, _) = self.names(seal, key);
        // Not GET: whoever writes to the store does not choose how much is read of it.
        let mut get = cmd("GETRANGE");
        get.arg(&token).arg(0).arg(LARGEST);
        let found = self.connection.with(|mut to| async move {
            let found: Vec<u8> = get.query_async(&mut to).await?;
            Ok(found)
        });
        let found = found.await?;
        if found.is_empty() {
            return Ok(None);
        }
        let Some(mut opened) = seal.open(key, &found) else {
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(token, "the stored token does not open, and is as none");
            }
            return Ok(None);
        };
        self.warned.store(false, Ordering::Relaxed);
        Ok(Some(StoredToken::from_bytes(std::mem::take(&mut *opened))))
    }

    async fn save(
        &self,
        key: &str,
        stored: &StoredToken,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let seal = self.seal()?;
        let (token, lease) = self.names(seal, key);
        let until = stored.expires_at().duration_since(UNIX_EPOCH)?;
        let mut put = self.put.key(&token);
        put.key(&lease);
        put.arg(seal.close(key, stored.as_bytes())?);
        put.arg(millis(until)?);
        put.arg(self.mark().as_slice());
        let done = self.connection.with(|mut to| async move {
            let done: RedisResult<()> = put.invoke_async(&mut to).await;
            done
        });
        Ok(done.await?)
    }

    async fn lease(&self, key: &str, term: Duration) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let (_, lease) = self.names(self.seal()?, key);
        let mark = Mark::try_generate()?;
        // Before it is sent: if the answer is lost, the lease is ours all the same.
        *self.mark() = mark;
        let mut set = cmd("SET");
        set.arg(&lease).arg(mark.as_slice()).arg("NX");
        set.arg("PX").arg(millis(term)?.max(1));
        let taken = self.connection.with(|mut to| async move {
            let taken: Option<String> = set.query_async(&mut to).await?;
            Ok(taken.is_some())
        });
        Ok(taken.await?)
    }

    fn release(&self, key: &str) -> bool {
        let (Ok(seal), Ok(runtime)) = (self.seal(), Handle::try_current()) else {
            return false;
        };
        let (_, lease) = self.names(seal, key);
        let (connection, end, mark) =
            (Arc::clone(&self.connection), self.end.clone(), *self.mark());
        drop(runtime.spawn(async move {
            let ended = connection.with(|mut to| async move {
                let ended: RedisResult<()> = end
                    .key(lease)
                    .arg(mark.as_slice())
                    .invoke_async(&mut to)
                    .await;
                ended
            });
            if let Err(error) = ended.await {
                let error: &dyn Error = &error;
                tracing::debug!(error, "the lease of the token ends by itself");
            }
        }));
        true
    }
}

impl fmt::Debug for RedisTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTokens")
            .field("fleet", &self.fleet)
            .finish_non_exhaustive()
    }
}

// === impl Connection ===

impl Connection {
    /// Does something over a connection that answered just now, or over a new one; and keeps it if
    /// it answers.
    ///
    /// redis' own `ConnectionManager` keeps one for ever, and fails the first operation after the
    /// store was restarted, and each one for minutes after a firewall forgot the connection: each
    /// member would then ask for a token of its own.
    async fn with<T, F>(&self, work: impl FnOnce(MultiplexedConnection) -> F) -> RedisResult<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let kept = self.kept().take();
        let fresh = kept.filter(|(_, answered)| answered.elapsed() < KEPT);
        let connection = match fresh {
            Some((connection, _)) => connection,
            None => self.open().await?,
        };
        let done = work(connection.clone()).await?;
        *self.kept() = Some((connection, Instant::now()));
        Ok(done)
    }

    async fn open(&self) -> Result<MultiplexedConnection, RedisError> {
        tls::provide(&self.client)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(BOUND))
            .set_response_timeout(Some(BOUND));
        let opened = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        opened.await
    }

    fn kept(&self) -> MutexGuard<'_, Option<(MultiplexedConnection, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> Result<u64, std::num::TryFromIntError> {
    u64::try_from(time.as_millis())
}

/// The token, and the end of the lease if it is this member's.
const PUT: &str = "
    if redis.call('GET', KEYS[2]) == ARGV[3] then redis.call('DEL', KEYS[2]) end
    redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])";
/// The end of the lease, if it is this member's.
const END: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
/// For a connection, and for an answer: both fit into the two seconds that tower-oidc-cc gives an
/// operation, so that a store that hangs says of itself what is wrong.
const BOUND: Duration = Duration::from_millis(900);
/// A member that waits for another's token reads four times a second. Between two flights lie hours, in
/// which a store may be restarted.
const KEPT: Duration = Duration::from_secs(1);
/// The last byte that is read: 128 KiB are a token of 64 KiB and what stands around it.
const LARGEST: usize = 128 * 1024 - 1;
