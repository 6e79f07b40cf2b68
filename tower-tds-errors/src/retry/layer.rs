//! The layer: how often, how long, and with what waits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Retry;
use super::backoff::{Backoff, Dice};
use super::replay::CloneBody;

/// Sends a request again if that can help, a few times, after waits that the service asks for or
/// that are drawn at random.
///
/// Use it outermost: each attempt then takes the current token, a new permit and, if need be, a
/// new connection. Which failures are retried, and how, stands on the crate's front page.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{Error, Kind, RetryLayer, Stop};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let busy = service_fn(async |_: Request<()>| {
///     Err::<Response<()>, _>(Error::new(Kind::Unavailable, "busy"))
/// });
/// let layer = RetryLayer::new()
///     .attempts(NonZeroU32::new(5).unwrap())
///     .deadline(Duration::from_secs(30));
/// let error = layer.layer(busy).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!(error.attempts(), 5);
/// assert_eq!(error.stopped_because(), Some(Stop::Attempts));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer<P = CloneBody> {
    policy: Policy,
    replay: P,
}

#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) attempts: NonZeroU32,
    pub(super) deadline: Option<Duration>,
    pub(super) longest_wait: Duration,
    pub(super) backoff: Backoff,
    pub(super) dice: Dice,
}

// === impl RetryLayer ===

impl RetryLayer {
    /// Three attempts, no deadline, the default [`Backoff`], waits of up to 30 s, and bodies that
    /// are cloned.
    #[must_use]
    pub fn new() -> Self {
        Self {
            policy: Policy::default(),
            replay: CloneBody::new(),
        }
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> RetryLayer<P> {
    /// Sets how often a request is sent at most, the first time included.
    #[must_use]
    pub const fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.policy.attempts = attempts;
        self
    }

    /// Bounds the time from the call to the head of the last answer: attempts, waits and
    /// readiness together.
    ///
    /// A wait that does not fit is not begun. Without a deadline nothing cuts an attempt off, so
    /// have timeouts below.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = Some(deadline);
        self
    }

    /// Sets the waits before retries of transient failures.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets the longest wait that the service may ask for.
    ///
    /// Above it the error comes at once, with [`retry_at`](crate::Error::retry_at): a shorter wait
    /// would come too early, and a quota of a day is not slept through.
    #[must_use]
    pub const fn longest_wait(mut self, longest: Duration) -> Self {
        self.policy.longest_wait = longest;
        self
    }

    /// Draws all waits from `seed`, so that a test can repeat them.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.policy.dice = Dice::seeded(seed);
        self
    }

    /// Sets how bodies are sent twice: by a closure, or by [`NeverReplay`](crate::NeverReplay).
    ///
    /// A closure names the type of the body: `|body: &Full<Bytes>| ..`; see
    /// [`Replay`](crate::Replay).
    #[must_use]
    pub fn replay<Q>(self, replay: Q) -> RetryLayer<Q> {
        RetryLayer {
            policy: self.policy,
            replay,
        }
    }
}

impl<S, P: Clone> Layer<S> for RetryLayer<P> {
    type Service = Retry<S, P>;

    fn layer(&self, inner: S) -> Retry<S, P> {
        Retry::new(inner, Arc::new(self.policy.clone()), self.replay.clone())
    }
}

// === impl Policy ===

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: THREE,
            deadline: None,
            longest_wait: LONGEST_WAIT,
            backoff: Backoff::default(),
            dice: Dice::default(),
        }
    }
}

/// The SRE book's rule for one level of retries ("Handling Overload").
const THREE: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// What a caller can be made to wait without being asked; a window of a minute is above it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
