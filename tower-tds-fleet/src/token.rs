//! [`TokenStore`] in Redis or Valkey with sealed entries.

use std::{
    error::Error,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use chacha20poly1305::aead::Generate as _;
use redis::{AsyncConnectionConfig, Client, RedisResult, Script, aio::MultiplexedConnection, cmd};
use tokio::time::sleep;
use tower_oidc_cc::{StoredToken, TokenStore};

use self::seal::Seal;
use crate::tls;

mod seal;

/// Stores one sealed token for all members of a fleet in Redis or Valkey.
///
/// Fifty processes that start at once make one token request together, and one for each renewal,
/// because one member takes the turn and requests the token that the others then read. Give each
/// [`TokenSource`](tower_oidc_cc::TokenSource) a `RedisTokens` of its own. You need Redis from 6.2
/// or Valkey from 7.2; in a cluster, connect to the node with the fleet's slot.
///
/// # What the store holds
///
/// | key | value | until |
/// |---|---|---|
/// | `{fleet}:token:NAME` | the token, and the error of the endpoint when it gave none, sealed | both have expired |
/// | `{fleet}:token:NAME:turn` | 16 random bytes of the member that requests a token | its request ends, or five seconds later |
///
/// `{fleet}` is the fleet's name in braces. `NAME` is 32 hexadecimal digits, derived from the
/// client secret, the endpoint, the client id and the token parameters. When you rotate the secret,
/// the name changes, so members before and after the rotation do not disturb each other. Values are
/// sealed by XChaCha20-Poly1305, under a key that is also derived with HKDF-SHA256. Read access to
/// the store, its dumps or its replicas shows neither the token nor its purpose, because opening
/// the seal is as hard as guessing the secret. Write access is enough to stop the sharing or to
/// restore an earlier token, but not to inject another one.
///
/// # Times
///
/// The store deletes a token at its expiry, by its own clock; members also check the sealed expiry,
/// by theirs. Each operation takes at most 900 ms to connect and 900 ms for each reply. No
/// connection is kept between operations, because they are hours apart, and a firewall or a restart
/// may cut it meanwhile.
///
/// # Errors
///
/// Your calls never fail because of the store. If it is unreachable or hangs, a warning is logged,
/// and this process requests a token of its own, as often as a
/// [source](tower_oidc_cc::TokenSource#load) without a store. It does the same if the secret is
/// empty, because then nothing is stored. Values that do not open count as missing, with a warning.
///
/// Your user needs these rights for a fleet `buses`: `~{buses}:token:* +getrange +set +get +del
/// +evalsha +script|load`.
///
/// # Cancel safety
///
/// Each step is one command or one script, so a dropped future leaves it done or not begun. A turn
/// whose reply was not read expires.
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
    client: Client,
    /// Mark of the last turn that was requested, granted or not. The script compares it with the
    /// stored one.
    mark: Mutex<Mark>,
    put: Script,
}

/// Random bytes that mark the turn of one member for one token request.
type Mark = [u8; 16];

// === impl RedisTokens ===

impl RedisTokens {
    /// Creates a store for the fleet's members.
    ///
    /// Pass the same client secret in all members, because it seals the tokens. White space around
    /// it does not matter.
    ///
    /// The first operation opens the connection. For `rediss://` you need the feature `ring` or
    /// `aws-lc-rs`, or `tls` and a `CryptoProvider` that your program has installed.
    #[must_use]
    pub fn new(client: Client, fleet: impl Into<String>, client_secret: &str) -> Self {
        Self {
            fleet: fleet.into(),
            seal: Seal::new(client_secret.trim()),
            client,
            mark: Mutex::default(),
            put: Script::new(PUT),
        }
    }

    fn seal(&self) -> Result<&Seal, &'static str> {
        let seal = self.seal.as_ref();
        seal.ok_or("there is no client secret to seal the token with")
    }

    /// Returns the keys of the token and of its turn. With the braces, the hash tag of Redis, all
    /// keys of a fleet are in one slot.
    fn names(&self, seal: &Seal, key: &str) -> (String, String) {
        let token = format!("{{{}}}:token:{}", self.fleet, seal.name(key));
        let turn = format!("{token}:turn");
        (token, turn)
    }

    /// Opens a connection.
    ///
    /// Rejected: redis's `ConnectionManager`, which keeps its connection for ever. It fails the
    /// first operation after a restart of the store, and every operation for minutes after a
    /// firewall has cut the connection, so that each member would request a token of its own.
    async fn open(&self) -> RedisResult<MultiplexedConnection> {
        tls::provide(&self.client)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(BOUND))
            .set_response_timeout(Some(BOUND));
        let opened = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        opened.await
    }

    fn mark(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and opens the entry of this name.
    async fn read(
        &self,
        store: &mut MultiplexedConnection,
        seal: &Seal,
        (key, token): (&str, &str),
    ) -> RedisResult<Option<StoredToken>> {
        // Reads a range instead of the whole, because a writer to the store must not choose how
        // much is read.
        let mut get = cmd("GETRANGE");
        get.arg(token).arg(0).arg(LARGEST);
        let found: Vec<u8> = get.query_async(store).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let Some(mut opened) = seal.open(key, &found) else {
            tracing::warn!(token, "the stored token does not open; treated as missing");
            return Ok(None);
        };
        Ok(Some(StoredToken::from_bytes(std::mem::take(&mut *opened))))
    }

    /// Stores an entry if there is one, and ends the turn if it is this member's.
    async fn put(
        &self,
        store: &mut MultiplexedConnection,
        (token, turn): (&str, &str),
        entry: Option<(Vec<u8>, u64)>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut put = self.put.key(turn);
        put.key(token).arg(self.mark().as_slice());
        if let Some((sealed, until)) = entry {
            put.arg(sealed).arg(until);
        }
        Ok(put.invoke_async(store).await?)
    }
}

impl TokenStore for RedisTokens {
    async fn load(
        &self,
        key: &str,
        is_enough: &(dyn Fn(&StoredToken) -> bool + Sync),
    ) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
        let seal = self.seal()?;
        let (token, turn) = self.names(seal, key);
        let store = &mut self.open().await?;
        let mut has_turn = false;
        loop {
            let found = self.read(store, seal, (key, &token)).await?;
            let is_enough = found.as_ref().is_some_and(is_enough);
            if is_enough && has_turn {
                self.put(store, (&token, &turn), None).await?;
            }
            if is_enough || has_turn {
                return Ok(found);
            }
            // Set before the command is sent: if the reply is lost, this member may still have the
            // turn.
            let mark = Mark::try_generate()?;
            *self.mark() = mark;
            let mut set = cmd("SET");
            set.arg(&turn).arg(mark.as_slice()).arg("NX");
            let taken: Option<String> = set.arg("PX").arg(TURN).query_async(store).await?;
            has_turn = taken.is_some();
            if !has_turn {
                sleep(LOOK_EVERY).await;
            }
        }
    }

    async fn save(
        &self,
        key: &str,
        entry: &StoredToken,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let seal = self.seal()?;
        let (token, turn) = self.names(seal, key);
        let until = entry.expires_at().duration_since(UNIX_EPOCH)?;
        let until = u64::try_from(until.as_millis())?;
        let entry = (until > 0).then_some((seal.close(key, entry.as_bytes())?, until));
        self.put(&mut self.open().await?, (&token, &turn), entry)
            .await
    }
}

impl fmt::Debug for RedisTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTokens")
            .field("fleet", &self.fleet)
            .finish_non_exhaustive()
    }
}

/// Stores the entry if there is one, and ends the turn if it is this member's.
const PUT: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
    if ARGV[2] then redis.call('SET', KEYS[2], ARGV[2], 'PXAT', ARGV[3]) end";
/// Longest turn, in milliseconds. Healthy endpoints answer sooner, and a slower one gets one request every five seconds. If a
/// member is stopped in its turn, the others are delayed by this time.
const TURN: u64 = 5_000;
/// Time between two looks while it is the turn of another member. Fifty waiting members make two hundred reads a second,
/// a small load for Redis.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest time of a connect, and of a reply. Both fit into the two seconds that tower-oidc-cc
/// allows a save, so that a store that hangs gives this crate's own error.
const BOUND: Duration = Duration::from_millis(900);
/// Index of the last byte that is read. 128 KiB hold a token of 64 KiB and its envelope.
const LARGEST: usize = 128 * 1024 - 1;
