use std::{
    fmt,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;
use tower_service::Service;

use crate::{
    Error, Limiter,
    credential::{PauseWaiter, Probe},
    gate::Turn,
    request::{Feedback, PermitBody, ReadStatus, ResponseFuture, permit::RequestPermit},
};

/// Keeps requests inside a [`Limiter`]'s limits, from their grant to the end of their bodies.
///
/// # Backpressure
/// `poll_ready` waits for the inner service first and then, first in, first out, for a permit,
/// which the readied instance holds until `call`. Dropping the readied instance gives the permit
/// back uncounted. A clone that was polled and is then neither polled again nor dropped keeps
/// its permit or its place in the queue: use a clone for one request
/// (`oneshot`), or drop it. A response that is kept while nobody reads its body keeps its place in
/// flight too: whoever makes many calls at once reads each body where the call was made, and does
/// not wait for all responses first.
///
/// # Cancel safety
/// Dropping the response future or the body frees the place in flight at once. A request whose
/// response never came stays counted for [`Limits::lost_after`](crate::Limits::lost_after) and
/// the quota's interval more, because the service may still count it.
///
/// # Clone
/// Clones share the limiter; a clone has no permit and no place in the queue.
///
/// # Errors
/// The response future gives [`Error::Limit`] when the wait reached
/// [`Limits::max_wait`](crate::Limits::max_wait), and [`Error::Inner`] for the inner service's
/// own. `poll_ready` gives only the inner service's.
///
/// # Panics
/// `call` panics with "`poll_ready` must give Ready before `call`" if that was not so.
///
/// # Examples
/// See the [crate's front page](crate).
pub struct RequestLimit<S, F = ReadStatus> {
    inner: S,
    feedback: F,
    turn: Turn<RequestPermit>,
    pause: PauseWaiter,
    /// There if the next request tries whether a pause is over.
    probe: Option<Probe>,
}

// === impl RequestLimit ===

impl<S, F> RequestLimit<S, F> {
    /// Limits `inner` by `limiter`.
    pub fn new(inner: S, limiter: &Limiter, feedback: F) -> Self {
        Self {
            inner,
            feedback,
            turn: limiter.request_turn(),
            pause: PauseWaiter::default(),
            probe: None,
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, to change it.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service alone.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// As `poll_ready`, with an error for the response future instead of a wait.
    pub(super) fn poll_ready_or_reject<R>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error<S::Error>>>
    where
        S: Service<R>,
    {
        if self.turn.is_decided() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.inner.poll_ready(cx)).map_err(Error::Inner)?;
        match self.turn.source().try_over() {
            Ok(probe) => {
                self.turn.pass_or_reject();
                // Without a permit there is no try, and another may.
                self.probe = probe.filter(|_| self.turn.is_granted());
            }
            Err(error) => self.turn.reject(error),
        }
        Poll::Ready(Ok(()))
    }

    fn must_pause(&self) -> bool {
        self.probe.is_none() && self.turn.source().is_paused()
    }

    /// Waits for the end of a pause, if there is one. Says whether the request may go on; if not,
    /// its error is decided.
    fn poll_pause_over(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Whoever waits leaves in the order of coming, and not when the flag is seen to be clear.
        if !self.must_pause() && !self.pause.is_waiting() {
            return Poll::Ready(true);
        }
        // A place in the queue kept through a pause would keep others waiting.
        let since = self.turn.step_back();
        let over = ready!(self.pause.poll_over(self.turn.source(), since, cx));
        let since = self.pause.take_since();
        Poll::Ready(match over {
            Ok(probe) => {
                self.probe = probe;
                if let Some(since) = since {
                    self.turn.waiting_since(since);
                }
                true
            }
            Err(error) => {
                self.turn.reject(error);
                false
            }
        })
    }
}

impl<S, F, Request, B> Service<Request> for RequestLimit<S, F>
where
    S: Service<Request, Response = Response<B>>,
    F: Feedback<Response<B>, S::Error> + Clone,
    B: Body,
{
    type Response = Response<PermitBody<B>>;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S::Future, F>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A permit is only granted while it is polled for, so that nobody who waited in the queue
        // while a pause began is sent into it.
        if self.turn.is_decided() || !ready!(self.poll_pause_over(cx)) {
            return Poll::Ready(Ok(()));
        }
        let ready = ready!(self.turn.poll_ready(cx, |cx| self.inner.poll_ready(cx)));
        if !self.turn.is_granted() {
            // Without a permit there is no try, and another may.
            self.probe = None;
        }
        Poll::Ready(ready.map_err(Error::Inner))
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        match self.turn.take() {
            Ok(mut permit) => {
                permit.sent(self.probe.take());
                let response = self.inner.call(request);
                ResponseFuture::called(response, permit, self.feedback.clone())
            }
            Err(error) => ResponseFuture::refused(error),
        }
    }
}

impl<S: Clone, F: Clone> Clone for RequestLimit<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            feedback: self.feedback.clone(),
            turn: self.turn.another(),
            pause: PauseWaiter::default(),
            probe: None,
        }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for RequestLimit<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLimit")
            .field("inner", &self.inner)
            .field("turn", &self.turn)
            .finish_non_exhaustive()
    }
}
