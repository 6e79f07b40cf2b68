//! The handle that every layer, service and probe shares.

use std::{fmt, future::poll_fn, sync::Arc};

use self::{
    badge::{LANES, pick},
    bearer::Bearer,
    shared::Shared,
};
use crate::{Event, Health, Judgement, Provider, Rejection, TokenEndpoint, TokenError};

pub use self::builder::TokenSourceBuilder;
pub(crate) use self::{
    badge::{Badge, Desk},
    wait::Wait,
};

mod badge;
mod bearer;
mod builder;
mod cold;
mod driver;
mod duty;
mod entry;
mod fleet;
mod grant;
mod keyring;
mod patience;
mod refusals;
mod settings;
mod shared;
mod slot;
mod sync;
#[cfg(test)]
mod tests;
mod wait;

/// Keeps one valid token for everyone who holds a clone of this handle.
///
/// The first use starts a task on the runtime of the caller, the *driver*. It fetches the token,
/// renews it at 70 to 80 % of its life and ends with the last handle, or with the token request
/// that is then under way. Building needs no runtime. One handle is one credential: give a second
/// credential a second handle.
///
/// # Cancel safety
///
/// A token request belongs to the driver. Dropping a caller that waits, the one that caused the
/// request too, only gives up its own wait. If the runtime of the driver is shut down, the next
/// use starts a driver on its own runtime, and a token that is still valid stays in use. A runtime
/// that is kept but not driven is given up after four times the timeout of a token request, by
/// those who wait; they need a runtime with a timer for that.
///
/// # Clone
///
/// Clones share the token, the driver and the memory of failures.
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
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TokenSource {
    shared: Arc<Shared>,
    desks: Arc<[Arc<Desk>; LANES]>,
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
        poll_fn(|cx| wait.poll(self, cx)).await
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
        let flight = self.shared.lock().flight.clone();
        if let Some(mut landed) = flight {
            // Nothing is ever sent: it ends when the flight does.
            while landed.changed().await.is_ok() {}
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
    ///     health.last_error().is_some() && short
    /// }
    /// # let _ = is_worrying;
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// The number of the token that may be sent at this moment; 0 if there is none. One load.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.shared.current()
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.shared.tell(event);
    }

    /// The badge of this moment: of the token that a driver attends to, or else by the clock.
    pub(crate) fn badge(&self) -> Option<Badge> {
        if let Some(bearer) = &*self.shared.attended() {
            return Some(self.issue(bearer));
        }
        Some(self.issue(&*self.shared.unattended()?))
    }

    fn new(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let desk = |_| {
            let shared = Arc::clone(&shared);
            Arc::new(Desk { shared })
        };
        Self {
            desks: Arc::new(std::array::from_fn(desk)),
            shared,
        }
    }

    fn issue(&self, bearer: &Bearer) -> Badge {
        Badge {
            header: bearer.header().clone(),
            generation: bearer.generation,
            desk: Arc::clone(pick(&self.desks)),
        }
    }
}

// === impl Desk ===

impl Desk {
    /// Acts on a judgement about the token of this generation, and says what was done.
    pub(crate) fn find(&self, judgement: Judgement, generation: u64) -> Rejection {
        self.shared.find(judgement, generation)
    }
}

// === impl TokenSource ===

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("fresh", &(self.current() != 0))
            .finish_non_exhaustive()
    }
}
