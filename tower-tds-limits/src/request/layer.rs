use std::{marker::PhantomData, time::Duration};

use tower_tds_outcome::ReadOutcome;

use super::outcome::ReadHyper;
use crate::limiter::Limiter;

/// Puts [`RequestLimit`](crate::RequestLimit) around a service.
///
/// Every service that the layer makes shares the limiter.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
///
/// let layer = RequestLimitLayer::new(Limiter::new(Limits::default()))
///     .detached()
///     .max_waiting(1_000)
///     .answer_timeout(Duration::from_secs(10));
/// # drop(layer);
/// ```
#[must_use]
#[derive(Debug, Clone)]
pub struct RequestLimitLayer<F = ReadHyper, M = ()> {
    pub(super) settings: Settings<F>,
    mode: PhantomData<M>,
}

/// Mode of a layer that completes a dropped call in the background if its request was sent.
#[derive(Debug, Clone, Copy)]
pub enum Detached {}

/// Settings that all services of a layer share.
#[derive(Debug, Clone)]
pub(crate) struct Settings<F> {
    pub(super) limiter: Limiter,
    pub(super) reader: F,
    pub(super) max_waiting: usize,
    pub(super) answer: Option<Duration>,
    /// Whether hyper's HTTP/1 client drops the extensions of a request when it has sent it.
    pub(super) over_hyper_http1: bool,
}

// === impl RequestLimitLayer ===

impl RequestLimitLayer {
    /// Limits requests with `limiter`, and reads responses with [`ReadHyper`]. After a 429 the services
    /// of this layer and its clones pause, and those of other layers do not.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            settings: Settings {
                limiter: limiter.another(),
                reader: ReadHyper,
                max_waiting: usize::MAX,
                answer: None,
                over_hyper_http1: false,
            },
            mode: PhantomData,
        }
    }
}

impl<F, M> RequestLimitLayer<F, M> {
    /// Returns a handle to the limiter, whose [snapshot](Limiter::snapshot) holds the pause of this
    /// layer's services after a 429.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.settings.limiter
    }

    /// Sets the reader of a call's outcome; [`ReadHyper`] by default.
    ///
    /// Set it if your service refuses with statuses of its own, or if its errors show more than
    /// those of hyper. Leave all other results to `ReadHyper`, which also finds the
    /// [`Outcome`](tower_tds_outcome::Outcome) in an error of a layer below.
    pub fn read_outcome<G: ReadOutcome>(self, reader: G) -> RequestLimitLayer<G, M> {
        let settings = self.settings;
        RequestLimitLayer {
            settings: Settings {
                limiter: settings.limiter,
                reader,
                max_waiting: settings.max_waiting,
                answer: settings.answer,
                over_hyper_http1: settings.over_hyper_http1,
            },
            mode: PhantomData,
        }
    }

    /// Completes calls whose callers have dropped them.
    ///
    /// Turn this on where callers give up, for example behind a timeout. By then the service may have
    /// counted the request, so its permit is only safe to reuse once the response is there. Without
    /// this, such a permit is held for [`Limits::lost_after`](crate::Limits::lost_after); with it,
    /// the response is read in the background and the connection stays open.
    ///
    /// If half of your callers cancel after sending, that is 37 requests a second instead of 8
    /// (`cargo test -p tower-tds-limits-tests --test requests half_of`).
    ///
    /// The inner service's future is boxed, because a task may take it over, and has to be
    /// `Send + 'static`.
    ///
    /// # Cancel safety
    /// Dropping the future spawns the rest of the call on the current runtime, for at most 10 s or
    /// 256 KiB of body. A call that is known to be unsent
    /// ([`over_hyper_http1`](Self::over_hyper_http1)) is dropped instead. So is one that reaches its
    /// deadline before it is known to be sent, because nothing is sent after a deadline.
    pub fn detached(self) -> RequestLimitLayer<F, Detached> {
        RequestLimitLayer {
            settings: self.settings,
            mode: PhantomData,
        }
    }

    /// Declares that hyper's HTTP/1 client is below, and that no layer in between keeps a request's
    /// extensions after it has passed the request on.
    ///
    /// Such a client drops the extensions of a request when it has written the head, so a guard in
    /// them shows whether a call that ends early was sent. So you gain three things:
    ///
    /// - if you drop a call that still waited for its connection, its permit is back at once;
    /// - an error at the deadline shows whether the request was sent;
    /// - [`answer_timeout`](Self::answer_timeout) begins when the request is sent.
    ///
    /// Without it, a dropped call counts as sent once it has its permit.
    ///
    /// Do not use it above a layer that holds the request or its extensions across an `await`, for
    /// example one that signs requests: a request on the wire would be taken for one that never left,
    /// and you would exceed the quota. HTTP/2 and clients that convert the request drop the
    /// extensions early: there you gain nothing, and a [detached](Self::detached) call that still
    /// waits for its connection at its deadline may be sent up to ten seconds later.
    pub fn over_hyper_http1(mut self) -> Self {
        self.settings.over_hyper_http1 = true;
        self
    }

    /// Rejects calls while `calls` others wait; by default any number may wait. With zero, a call
    /// that would have to wait is [rejected](crate::Error::is_rejected).
    ///
    /// # Examples
    /// ```
    /// use std::{convert::Infallible, num::NonZeroU32};
    /// use http::{Request, Response};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_tds_limits::{Error, Limiter, Limits, Quota, RequestLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Error> {
    /// let limiter = Limiter::new(Limits::new(Quota::per_second(NonZeroU32::MIN)));
    /// let service = ServiceBuilder::new()
    ///     .layer(RequestLimitLayer::new(limiter).max_waiting(0))
    ///     .service(service_fn(async |_request: Request<String>| {
    ///         Ok::<_, Infallible>(Response::new(String::from("bus 307")))
    ///     }));
    ///
    /// service.clone().oneshot(Request::new(String::new())).await?;
    /// let error = service.oneshot(Request::new(String::new())).await.expect_err("one a second");
    /// assert!(error.is_rejected());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.settings.max_waiting = calls;
        self
    }

    /// Bounds the time from when a request is sent to its response head.
    ///
    /// Waits for a permit and a token do not count. If you declare
    /// [`over_hyper_http1`](Self::over_hyper_http1), the wait for a connection does not count either;
    /// then give connects their own timeout. Allow more than 10 s above a token layer, which may
    /// hold a call for that long if its token was refused (401).
    ///
    /// A call that this ends is dropped, even with [`detached`](Self::detached): its connection ends
    /// at once, so the permit of a socket that died is back after 30 s.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.settings.answer = Some(timeout);
        self
    }
}
