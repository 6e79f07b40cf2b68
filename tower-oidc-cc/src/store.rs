//! Token stores: one token for several processes.

use std::{error::Error, future::Future, time::Duration};

#[cfg(feature = "file-store")]
pub use self::file::File;
pub(crate) use self::leases::{BOUND, Leases, Named, Wants};
pub use self::stored::StoredToken;

#[cfg(feature = "file-store")]
mod file;
mod leases;
mod stored;

/// Keeps a token for other processes, so that a fleet makes one token request and not one each.
///
/// Use it where many processes share one client: a file for those of one machine, Redis or Valkey
/// for those of several. [`TokenSourceBuilder::store`](crate::TokenSourceBuilder::store) takes it. It is
/// asked before each token request and told after one that succeeded, by the driver alone: no call
/// that finds a valid token ever waits for it.
///
/// What is behind it may break. A store that fails, takes longer than two seconds, or holds what is
/// no token, somebody else's, an expired or a dead one is as good as none: this process asks for
/// itself, within its own [budget](crate::TokenSourceBuilder::budget). A store sees the token in clear: let nobody
/// else read it, or encrypt what [`StoredToken::as_bytes`] gives.
///
/// A key names the endpoint, the client id and all that is asked for, each with its length. The
/// secret is not in it, but the values of [`Parameters::extra`](crate::Parameters::extra) are.
///
/// # Cancel safety
///
/// Each future is dropped if it takes too long. Half a write must leave the old entry or none: a
/// file is written beside the old one and renamed over it.
///
/// # Examples
///
/// ```
/// use std::{collections::HashMap, error::Error, sync::Mutex, time::Duration};
/// use tokio::time::Instant;
/// use tower_oidc_cc::{StoredToken, TokenStore};
///
/// /// For the handles of one process. In Redis: GET, SET PXAT with DEL of the lease, SET NX PX.
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
    /// Gives what was saved last under this key, if anything is there.
    ///
    /// # Errors
    ///
    /// Whatever went wrong. It is told to `tracing` and to nobody else.
    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Option<StoredToken>, Box<dyn Error + Send + Sync>>> + Send;

    /// Puts a token under this key, in place of what is there, and ends the lease of the key.
    ///
    /// It is worthless after [`StoredToken::expires_at`], by the wall clock.
    ///
    /// # Errors
    ///
    /// Whatever went wrong. It is told to `tracing` and to nobody else.
    fn save(
        &self,
        key: &str,
        token: &StoredToken,
    ) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send;

    /// Takes the right to ask for a token, for this long; says whether it was free.
    ///
    /// It ends by itself, so that another process can take over when this one dies. One of them
    /// at a time must be told `true`; if two are, two ask, and nothing else goes wrong.
    ///
    /// # Errors
    ///
    /// Whatever went wrong: an unreachable store, and not one whose lease is taken.
    fn lease(
        &self,
        key: &str,
        term: Duration,
    ) -> impl Future<Output = Result<bool, Box<dyn Error + Send + Sync>>> + Send;

    /// Ends a lease that was taken here and brought no token, so that others need not wait for its
    /// end; says whether it did. By default it does not, and the lease is kept for the next try.
    ///
    /// A process that stood still meanwhile comes here after its term. Give each lease the mark of
    /// its owner, a random value in Redis, and end it only while it has that: by then it may be
    /// another's.
    ///
    /// It is called when a runtime is shut down, too, where nothing can be awaited: spawn what
    /// takes time, and let the lease end by itself where that comes to nothing.
    fn release(&self, key: &str) -> bool {
        let _ = key;
        false
    }
}
