use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use http::{
    Request, Response,
    header::{CONNECTION, HeaderValue, RANGE},
};
use http_body::Body;
use tokio::time::{Instant, Sleep};
use tower_service::Service;
use tower_tds_outcome::{DeadlineAt, HandOver};
use tracing::Span;

use super::{
    permit::{PermitBody, RequestPermit},
    sent::SentCall,
};
use crate::{
    account::{Account, Granted},
    clock::{self, poll_timer},
    error::{BoxError, Decision, Error, WaitCause},
    limiter::Stack,
    wait::{CallDeadline, waiter::Waiter},
};

/// Response future of [`RequestLimit`](crate::RequestLimit).
///
/// # Cancel safety
/// See [`RequestLimit`](crate::RequestLimit).
pub struct ResponseFuture<S: Service<Request<R>>, R> {
    state: State<S, R>,
    /// Timer of the next bound, created when the call first waits.
    timer: Option<Pin<Box<Sleep>>>,
}

enum State<S: Service<Request<R>>, R> {
    // ## Waiting => (Sent | Done)
    Waiting(Waiting<S, R>),
    // ## Sent => Done
    Sent(SentCall<S::Future>),
    Done,
}

/// Call that was not sent yet.
struct Waiting<S, R> {
    inner: S,
    /// Taken out when it is sent, because a move of the whole call costs more.
    unsent: Option<(Request<R>, Arc<Stack>)>,
    waiter: Waiter<Account>,
    /// Boxed, because most calls do not wait.
    wait: Option<Box<RecordedWait>>,
}

/// A wait, which is recorded when it ends.
struct RecordedWait {
    since: Instant,
    /// Cause at the first poll.
    cause: WaitCause,
    /// Obstacle at the last poll.
    obstacle: Obstacle,
}

/// What a call waits for besides its permit, and until when, if that is known.
type Obstacle = Option<(WaitCause, Option<Instant>)>;

// === impl ResponseFuture ===

impl<S: Service<Request<R>>, R> ResponseFuture<S, R> {
    #[inline]
    pub(super) fn new(inner: S, request: Request<R>, stack: &Arc<Stack>) -> Self {
        Self {
            state: State::Waiting(Waiting {
                inner,
                unsent: Some((request, Arc::clone(stack))),
                waiter: Waiter::new(&stack.account, stack.priority),
                wait: None,
            }),
            timer: None,
        }
    }
}

/// Nothing in it is pinned: the inner future is boxed, so that a task can take it over.
impl<S: Service<Request<R>>, R> Unpin for ResponseFuture<S, R> {}

impl<S, R, B> Future for ResponseFuture<S, R>
where
    S: Service<Request<R>, Response = Response<B>, Error: Into<BoxError> + 'static>,
    S::Future: Send + 'static,
    B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
{
    type Output = Result<Response<PermitBody<B>>, Error>;

    /// Waits, sends, and waits for the response head.
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Waiting(call) => {
                    let now = clock::now();
                    let deadline = call.deadline(now);
                    let ends = deadline.map(|deadline| deadline.at);
                    match call.poll(cx, now, deadline.as_ref()) {
                        Poll::Ready(Ok(grant)) => this.state = call.send(grant, now, ends),
                        Poll::Ready(Err(error)) => {
                            this.state = State::Done;
                            return Poll::Ready(Err(error));
                        }
                        Poll::Pending => {
                            let until = call.wait.as_ref().and_then(|wait| wait.obstacle?.1);
                            ready!(poll_timer(&mut this.timer, [until, ends], cx));
                        }
                    }
                }
                State::Sent(call) => return call.poll(cx, &mut this.timer),
                State::Done => return Poll::Pending,
            }
        }
    }
}

impl<S: Service<Request<R>>, R> fmt::Debug for ResponseFuture<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

// === impl Waiting ===

impl<S, R> Waiting<S, R> {
    /// Waits for the inner service and for a permit.
    #[inline]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        deadline: Option<&CallDeadline>,
    ) -> Poll<Result<Granted, Error>>
    where
        S: Service<Request<R>>,
        S::Error: Into<BoxError>,
    {
        // A call whose sending panicked has none left.
        let Some((_, stack)) = &self.unsent else {
            return Poll::Pending;
        };
        let ends = deadline.map(|deadline| deadline.at);
        if ends.is_some_and(|ends| ends <= now) {
            let obstacle = self.wait.as_ref().and_then(|wait| wait.obstacle);
            let (cause, _) = self.wait_cause(obstacle, now);
            let waited = now.saturating_duration_since(self.since(now));
            return Poll::Ready(Err(Error::new(Decision::Deadline, cause, Some(waited))));
        }
        let pause = stack.pause.at(now);
        if let Some(pause) = pause
            && let Some(decision) = pause.rejects(ends, now)
        {
            let left = Some(pause.left(now));
            return Poll::Ready(Err(Error::new(decision, WaitCause::Pause, left)));
        }
        let obstacle = match self.inner.poll_ready(cx) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::below(error))),
            Poll::Pending => Some((WaitCause::Readiness, None)),
            Poll::Ready(Ok(())) => pause.map(|pause| (WaitCause::Pause, Some(pause.until()))),
        };
        let (most, is_ready) = (stack.max_waiting, obstacle.is_none());
        // Without readiness the call keeps its rank while later calls pass.
        match self.waiter.poll_pass(cx, now, deadline, most, is_ready) {
            Poll::Ready(Ok(grant)) => return Poll::Ready(Ok(grant)),
            Poll::Ready(Err(decision)) => {
                let (cause, left) = self.wait_cause(obstacle, now);
                let left = left.filter(|_| decision == Decision::Rejected);
                return Poll::Ready(Err(Error::new(decision, cause, left)));
            }
            Poll::Pending => {}
        }
        if let Some(wait) = &mut self.wait {
            wait.obstacle = obstacle;
        } else {
            self.wait = Some(Box::new(RecordedWait {
                since: now,
                cause: self.wait_cause(obstacle, now).0,
                obstacle,
            }));
        }
        Poll::Pending
    }

    /// Sends the request, in the same poll in which its permit was granted.
    #[inline]
    fn send<B>(&mut self, grant: Granted, now: Instant, deadline: Option<Instant>) -> State<S, R>
    where
        S: Service<Request<R>, Response = Response<B>, Error: Into<BoxError> + 'static>,
        S::Future: Send + 'static,
        B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
    {
        let Some((mut request, stack)) = self.unsent.take() else {
            return State::Done;
        };
        let mut permit = RequestPermit::new(stack, grant, now);
        if grant.closes_socket {
            // Ends the connection with this response (RFC 9112, section 9.6).
            let close = HeaderValue::from_static("close");
            request.headers_mut().insert(CONNECTION, close);
        }
        // A scan of a few names is faster than a hash.
        permit.grant.has_range = request.headers().keys().any(|name| *name == RANGE);
        let hand_over = HandOver::insert(request.extensions_mut());
        let response = self.inner.call(request);
        State::Sent(SentCall::new(response, permit, hand_over, now, deadline))
    }

    /// Returns the deadline, if there is one.
    #[inline]
    fn deadline(&self, now: Instant) -> Option<CallDeadline> {
        let (request, _) = self.unsent.as_ref()?;
        let deadline = request.extensions().get::<DeadlineAt>()?;
        let at = Instant::from_std(deadline.at);
        Some(CallDeadline {
            at,
            whole: at.saturating_duration_since(self.since(now)),
            has_body: deadline.covers_body,
        })
    }

    /// When the wait began, which is now if it has not.
    fn since(&self, now: Instant) -> Instant {
        self.wait.as_ref().map_or(now, |wait| wait.since)
    }

    /// Returns the cause of the wait, and the time until it ends.
    fn wait_cause(&self, obstacle: Obstacle, now: Instant) -> (WaitCause, Option<Duration>) {
        let Some((cause, until)) = obstacle else {
            return self.waiter.wait(now);
        };
        (cause, until.map(|at| at.saturating_duration_since(now)))
    }
}

// === impl RecordedWait ===

/// Records the wait, with a permit or without one.
impl Drop for RecordedWait {
    fn drop(&mut self) {
        let waited = clock::now().saturating_duration_since(self.since);
        let cause = self.cause.texts().0;
        let span = Span::current();
        if !span.is_none() {
            span.record(WAIT_CAUSE_FIELD, cause);
            span.record(WAIT_SECONDS_FIELD, waited.as_secs_f64());
        }
        #[cfg(feature = "metrics")]
        metrics::histogram!("tds_wait_seconds", "cause" => cause).record(waited.as_secs_f64());
    }
}

/// Field of the current span that holds the [cause](WaitCause::texts) of a call's last wait.
const WAIT_CAUSE_FIELD: &str = "tds.wait.cause";

/// Field of the current span that holds the length of a call's last wait, in seconds.
const WAIT_SECONDS_FIELD: &str = "tds.wait.seconds";
