//! The handle that every layer, service and probe shares.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use http::HeaderValue;

pub use self::builder::TokenSourceBuilder;
use self::shared::Shared;
pub(crate) use self::{
    shared::Outcome,
    slot::{header, token},
    wait::Wait,
};
use crate::{
    Health, Provider, TokenEndpoint, TokenError,
    clock::{Clock, Timestamp},
    state::{Call, Complaint},
    store::Named,
};

mod builder;
mod refresh;
mod shared;
mod slot;
mod sync;
#[cfg(test)]
mod tests;
mod wait;

/// Keeps one valid token for everyone who holds a clone of this handle.
///
/// The first use starts a task on the runtime of the caller. It fetches the token, renews it at 70
/// to 80 % of its life and ends with the last handle, or with the token request that is then under
/// way. A call under way is a handle. Building needs no runtime. One handle is one credential: give
/// a second credential a second handle.
///
/// # Load
///
/// What the token endpoint sees of one handle, for tokens of 24 hours.
///
/// | what happens | token requests |
/// |---|---|
/// | a day under [`RefreshPolicy::Ahead`](crate::RefreshPolicy::Ahead), the default; under [`RefreshPolicy::OnExpiry`](crate::RefreshPolicy::OnExpiry) | 2 |
/// | a day under [`RefreshPolicy::Interval`](crate::RefreshPolicy::Interval) of 4 hours, of 6 | 7, 5 at most |
/// | a thousand calls at once with no token, or with a token that is refused | 1 |
/// | a day of any number of processes that share a [`TokenStore`](crate::TokenStore) | 2 |
/// | the endpoint is down for an hour, under load | 240 in the mean, at growing distances |
/// | the credentials are wrong | 1 in one to two minutes |
/// | the service refuses all tokens, for an hour | 16 at most: at 0, 0, 1, 3, 7, 12, 17, ... min |
/// | calls are refused without a reason | 1 an hour |
/// | calls are refused for a missing role, or the gateway's own identity check fails | 0 |
/// | tokens that work die early, ten seconds old or more | 1 for each life |
/// | anything else, and all of these together | the [budget](crate::TokenSourceBuilder::budget): 240 an hour unless you say otherwise |
///
/// # Cancel safety
///
/// A token request belongs to that task. Dropping a caller that waits, the one that caused the
/// request too, only gives up its own wait. If its runtime is shut down, the next
/// use starts a task on its own runtime, and a token that is still valid stays in use. If its runtime
/// is kept but not driven, a wait for a token ends with an error after the time that a token request
/// may take, the store and the provider included.
///
/// # Clone
///
/// Clones share the token, the task and the memory of failures.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Any HTTP client that is a `Service` will do; this one is the server, too.
/// let client = tower::service_fn(|_: Request<Full<Bytes>>| async {
///     let reply = r#"{"access_token":"abc","token_type":"Bearer","expires_in":86400}"#;
///     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(reply))))
/// });
/// let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
/// let tokens = TokenSource::builder(endpoint, Credentials::new("id", "secret")?).build(client);
///
/// // A start-up probe: fail before taking traffic, not after.
/// tokens.ready().await?;
///
/// // For whoever sends it without a layer: a WebSocket's handshake, another HTTP client.
/// let token = tokens.token().await?;
/// assert_eq!(token.header(), "Bearer abc");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TokenSource {
    shared: Arc<Shared>,
}

/// Holds one token, for whoever sends it without the layer.
///
/// `Debug` shows no token. The bytes of the header are wiped with its last copy.
#[derive(Clone)]
pub struct AccessToken {
    header: HeaderValue,
    expires_at: SystemTime,
}

/// What a call remembers of its token until it is answered.
#[derive(Debug)]
pub(crate) struct Sent {
    shared: Arc<Shared>,
    pub(crate) generation: u64,
    call: Call,
    /// Whether calls of its group were accepted with this token before it was made.
    known: bool,
}

/// What the task that asks goes by.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) provider: Provider,
    /// For how long one token request may take.
    pub(crate) timeout: Duration,
    /// For how long a process is given to get a token for all.
    pub(crate) term: Duration,
    /// For how long a caller waits for a task of which nothing is heard.
    pub(crate) patience: Duration,
    pub(crate) clock: Clock,
    pub(crate) store: Option<Named>,
}

// === impl TokenSource ===

impl TokenSource {
    /// Starts with what cannot be defaulted: whom to ask, and as whom.
    ///
    /// [`Credentials`](crate::Credentials) are a provider that never changes.
    #[must_use]
    pub fn builder(
        endpoint: TokenEndpoint,
        credentials: impl Into<Provider>,
    ) -> TokenSourceBuilder {
        TokenSourceBuilder::new(endpoint, credentials.into())
    }

    /// Waits until there is a valid token, and asks for one if need be.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; the token request goes on.
    ///
    /// # Errors
    ///
    /// The error of the token request that was waited for, or of the last one if the endpoint is
    /// being left alone: see [`TokenError::retry_after`].
    pub async fn ready(&self) -> Result<(), TokenError> {
        let mut wait = Wait::default();
        poll_fn(|cx| self.poll(&mut wait, cx)).await
    }

    /// Gives the token of this moment, and waits for one if need be.
    ///
    /// It comes with the guarantees of the layer: never an expired one, one request for all who
    /// wait, renewed ahead. Take it anew for each call, which costs a lock and a look at the clocks.
    /// What the layer learns from answers is lost here: say so by [`invalidate`](Self::invalidate)
    /// where a call was refused for its token.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; the token request goes on.
    ///
    /// # Errors
    ///
    /// Those of [`ready`](Self::ready).
    pub async fn token(&self) -> Result<AccessToken, TokenError> {
        loop {
            self.ready().await?;
            if let Some(token) = self.try_token() {
                return Ok(token);
            }
        }
    }

    /// Gives the token of this moment if there is one, and waits for nothing: for interceptors that
    /// cannot wait. Where there is none it is asked for, and a later look finds it. Where nothing renews
    /// it any more, since that ended with its runtime, the caller's runtime does from here on.
    #[must_use]
    pub fn try_token(&self) -> Option<AccessToken> {
        let taken = self.shared.take();
        // Without a token, or without a task that renews it: the slot is empty then.
        if taken.is_none() || !self.is_fresh() {
            // Whoever waits is told; nobody does.
            drop(self.shared.enter());
        }
        let (header, _, expires_at) = taken?;
        Some(AccessToken {
            header,
            expires_at: expires_at.wall,
        })
    }

    /// Says that a call was refused for this token: its successor is asked for in the background,
    /// and the token stays in use until that is there.
    ///
    /// The manual remedy, for calls that go without the layer. A token that was replaced since, or
    /// is another handle's, says nothing. One that had served for a minute is replaced at once; where successors are
    /// invalidated as soon as they come, the distance between requests grows, up to five minutes.
    pub fn invalidate(&self, token: &AccessToken) {
        if let Some(generation) = self.shared.generation_of(&token.header) {
            drop(self.shared.complain(generation, Complaint::ByHand));
        }
    }

    /// Waits until no token request is under way: for a program that is about to end.
    ///
    /// A request that is cut off may have cost the server a token, and the other processes of a
    /// [`TokenStore`](crate::TokenStore) wait in vain for it until its lease is over. What has been
    /// got is in the store by the time this resolves. It starts nothing and keeps nothing from
    /// starting: let no more calls in first. A runtime that is kept but not driven never ends its
    /// request, so bound this by a timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    /// use tower_oidc_cc::TokenSource;
    ///
    /// async fn shut_down(tokens: TokenSource) {
    ///     // A token request takes ten seconds at most of a client that is ready, by default.
    ///     drop(timeout(Duration::from_secs(15), tokens.idle()).await);
    /// }
    /// # let _ = shut_down;
    /// ```
    pub async fn idle(&self) {
        if let Some(mut over) = self.shared.request() {
            // Nothing is ever sent: it ends when the request does.
            while over.changed().await.is_ok() {}
        }
    }

    /// Says how the token is at this moment. It asks for none, and waits for nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_oidc_cc::TokenSource;
    ///
    /// /// Worth a page: half an hour is left to mend the endpoint or the credentials.
    /// fn is_worrying(tokens: &TokenSource) -> bool {
    ///     let health = tokens.health();
    ///     let short = health.life_left().is_none_or(|left| left < Duration::from_secs(1_800));
    ///     let refused = health.refused_for() > Some(Duration::from_secs(60));
    ///     refused || (health.last_error().is_some() && short)
    /// }
    /// # let _ = is_worrying;
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Whether there is a token that may be sent at this moment, as far as a quick look says.
    pub(crate) fn is_fresh(&self) -> bool {
        self.shared.is_fresh()
    }

    /// The header of this moment, and what to remember until the call is answered.
    pub(crate) fn lend(&self, call: Call) -> Option<(HeaderValue, Sent)> {
        let (header, generation) = self.shared.header()?;
        let sent = Sent {
            shared: Arc::clone(&self.shared),
            generation,
            call,
            known: self.shared.slot.is_heard(call),
        };
        Some((header, sent))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.now()
    }

    /// Does something, and gives for how long calls have waited for a token whose wait came to its end
    /// by it, in this thread: by a token, by an error, or because whoever waited has gone.
    ///
    /// For who polls a call and wants to know what that has waited for, or drops one. It is the time of
    /// all sources together. Of two who listen, one inside the other, the inner one hears.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_oidc_cc::TokenSource;
    ///
    /// let (done, waited) = TokenSource::heard(|| 1 + 1);
    /// assert!(done == 2 && waited.is_zero());
    /// ```
    pub fn heard<T>(does: impl FnOnce() -> T) -> (T, Duration) {
        wait::heard(does)
    }

    pub(crate) fn poll(
        &self,
        wait: &mut Wait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TokenError>> {
        wait.poll(&self.shared, cx)
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource")
            .field("fresh", &self.is_fresh())
            .finish_non_exhaustive()
    }
}

// === impl AccessToken ===

impl AccessToken {
    /// The value of an `Authorization` header, `Bearer` and the token, marked as sensitive.
    #[must_use]
    pub fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// The token alone, in clear: for protocols that carry it elsewhere.
    #[must_use]
    pub fn secret(&self) -> &str {
        token(&self.header).unwrap_or_default()
    }

    /// When it expires, on the wall clock.
    #[must_use]
    pub fn expires_at(&self) -> SystemTime {
        self.expires_at
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken")
            .field("header", &"[redacted]")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

// === impl Sent ===

impl Sent {
    /// The token was accepted.
    pub(crate) fn accept(&self) {
        if !self.known {
            self.shared.accept(self.generation, self.call);
        }
    }

    /// Records a complaint about the token.
    pub(crate) fn complain(&self, complaint: impl FnOnce(Call) -> Complaint) -> Outcome {
        self.shared.complain(self.generation, complaint(self.call))
    }

    /// Resolves to whether there is a successor of the token.
    pub(crate) fn poll_successor(&self, wait: &mut Wait, cx: &mut Context<'_>) -> Poll<bool> {
        wait.poll_successor(&self.shared, self.generation, cx)
    }
}
