//! The layer: how often, how long, and with what waits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Retry;
use super::backoff::{Backoff, Dice};
use super::budget::Budget;
use super::counts::Counts;
use super::policy::Policy;
use super::replay::CloneBody;
use super::shared::Shared;
use crate::guard::Bodies;

/// Sends a request again if that can help, a few times, after waits that the service asks for or
/// that are drawn at random.
///
/// Use it outermost: each attempt then takes the current token, a new permit and, if need be, a
/// new connection. Which failures are retried, and how, stands on the crate's front page.
///
/// The service below has to fail with what is `Into<Error>`. If the compiler misses a `From` for
/// [`Error`](crate::Error), put [`ClassifyLayer`](crate::ClassifyLayer) below, and make the errors
/// of what is in between into this one by `map_err` and [`Error::new`](crate::Error::new).
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

// === impl RetryLayer ===

impl RetryLayer {
    /// Three attempts of up to a minute each, two minutes for all, the default [`Backoff`], waits of
    /// up to 30 s, and bodies that are cloned.
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

    /// Bounds the time from the call to the head of the last answer: attempts, waits, the reads of
    /// error bodies, and readiness between attempts together.
    ///
    /// A wait that does not fit is not begun. Readiness before the call is its caller's, who can
    /// give a request a [`Deadline`](crate::Deadline) of its own that counts from before.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = Some(deadline);
        self
    }

    /// Bounds each attempt, which is cut off as a [`Timeout`](crate::Kind::Timeout) and tried again
    /// like one. An attempt never has more than what is left to the deadline.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.policy.attempt = Some(timeout);
        self
    }

    /// Cuts nothing off: no deadline and no timeout for attempts.
    ///
    /// For services that answer when they like; a request has its own
    /// [`Deadline`](crate::Deadline) still.
    #[must_use]
    pub const fn untimed(mut self) -> Self {
        self.policy.deadline = None;
        self.policy.attempt = None;
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

    /// Sets what retries a host bears. The services of this layer and of its clones share it.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.policy.budget = Some(budget);
        self
    }

    /// Retries whatever load that makes: for a host that has this one client, or for none but tests.
    #[must_use]
    pub fn unbudgeted(mut self) -> Self {
        self.policy.budget = None;
        self
    }

    /// Lets a call that was refused for too many connections wait for the end of one of these.
    ///
    /// It waits for at most [`longest_wait`](Self::longest_wait), and by backoff after that, or at
    /// once where none is open.
    #[must_use]
    pub fn bodies(mut self, bodies: Bodies) -> Self {
        self.policy.bodies = Some(bodies);
        self
    }

    /// Counts what becomes of the calls.
    #[must_use]
    pub fn counts(mut self, counts: Counts) -> Self {
        self.policy.counts = Some(counts);
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

impl<S: Clone, P: Clone> Layer<S> for RetryLayer<P> {
    type Service = Retry<S, P>;

    fn layer(&self, inner: S) -> Retry<S, P> {
        let shared = Shared::new(self.policy.clone(), self.replay.clone(), inner.clone());
        Retry::new(inner, Arc::new(shared))
    }
}
