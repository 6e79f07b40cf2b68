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
    error::{BoxError, Error, Kind, WaitCause},
    limiter::Stack,
    wait::{Bounds, Deadline, Denial, shared::Waiter},
};

/// Response future of [`RequestLimit`](crate::RequestLimit).
///
/// # Cancel safety
/// See [`RequestLimit`](crate::RequestLimit).
pub struct ResponseFuture<S: Service<Request<R>>, R> {
    state: State<S, R>,
    /// Moves to the permit.
    stack: Option<Arc<Stack>>,
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
    /// `None` once it is sent.
    request: Option<Request<R>>,
    waiter: Waiter<Account>,
    wait: Wait,
}

/// A wait, which is recorded when it ends. It is boxed, because most calls do not wait.
struct Wait(Option<Box<Waited>>);

struct Waited {
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
                request: Some(request),
                waiter: Waiter::new(&stack.account, stack.line),
                wait: Wait(None),
            }),
            stack: Some(Arc::clone(stack)),
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
                    // A call whose sending panicked has none left.
                    let Some(stack) = &this.stack else {
                        return Poll::Pending;
                    };
                    let now = clock::now();
                    let bounds = call.bounds(stack, now);
                    let deadline = bounds.deadline.map(|deadline| deadline.at);
                    match call.poll(cx, now, stack, &bounds) {
                        Poll::Ready(Ok(grant)) => {
                            if let Some(stack) = this.stack.take() {
                                let permit = RequestPermit::new(stack, grant, now);
                                this.state = call.send(permit, now, deadline);
                            }
                        }
                        Poll::Ready(Err(error)) => {
                            this.state = State::Done;
                            return Poll::Ready(Err(error));
                        }
                        Poll::Pending => {
                            let ends = [call.wait.ends(), deadline];
                            ready!(poll_timer(&mut this.timer, ends, cx));
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
        stack: &Stack,
        bounds: &Bounds,
    ) -> Poll<Result<Granted, Error>>
    where
        S: Service<Request<R>>,
        S::Error: Into<BoxError>,
    {
        let deadline = bounds.deadline.map(|deadline| deadline.at);
        if deadline.is_some_and(|deadline| deadline <= now) {
            let (cause, _) = match &self.wait.0 {
                Some(wait) => self.reason(wait.obstacle, now),
                None => (WaitCause::Readiness, None),
            };
            let error = Error::new(Kind::Deadline, cause, Some(self.wait.length(now)));
            return Poll::Ready(Err(error));
        }
        let obstacle = match self.inner.poll_ready(cx) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::below(error))),
            Poll::Pending => Some((WaitCause::Readiness, None)),
            Poll::Ready(Ok(())) => match stack.pause.at(now) {
                None => None,
                Some(pause) => {
                    let until = pause.until();
                    let kind = match deadline {
                        _ if pause.is_long(now) => Some(Kind::Rejected),
                        Some(ends) if ends <= until => Some(Kind::Hopeless),
                        _ => None,
                    };
                    if let Some(kind) = kind {
                        let left = Some(pause.left(now));
                        return Poll::Ready(Err(Error::new(kind, WaitCause::Pause, left)));
                    }
                    Some((WaitCause::Pause, Some(until)))
                }
            },
        };
        let passed = if obstacle.is_none() {
            self.waiter.poll_pass(cx, now, bounds)
        } else {
            // The call keeps its place while later calls pass.
            match self.waiter.skip(bounds) {
                Ok(()) => Poll::Pending,
                Err(full) => Poll::Ready(Err(full)),
            }
        };
        match passed {
            Poll::Ready(Ok(grant)) => return Poll::Ready(Ok(grant)),
            Poll::Ready(Err(denial)) => {
                let (cause, left) = self.reason(obstacle, now);
                return Poll::Ready(Err(match denial {
                    Denial::Full => Error::new(Kind::Rejected, cause, left),
                    Denial::Late => Error::new(Kind::Hopeless, cause, None),
                }));
            }
            Poll::Pending => {}
        }
        if let Some(wait) = &mut self.wait.0 {
            wait.obstacle = obstacle;
        } else {
            self.wait.0 = Some(Box::new(Waited {
                since: now,
                cause: self.reason(obstacle, now).0,
                obstacle,
            }));
        }
        Poll::Pending
    }

    /// Sends the request, in the same poll in which its permit was granted.
    #[inline]
    fn send<B>(
        &mut self,
        mut permit: RequestPermit,
        now: Instant,
        deadline: Option<Instant>,
    ) -> State<S, R>
    where
        S: Service<Request<R>, Response = Response<B>, Error: Into<BoxError> + 'static>,
        S::Future: Send + 'static,
        B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
    {
        let Some(mut request) = self.request.take() else {
            return State::Done;
        };
        if permit.grant.closes_socket {
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

    /// Returns the bounds of the wait.
    #[inline]
    fn bounds(&self, stack: &Stack, now: Instant) -> Bounds {
        let extensions = self.request.as_ref().map(Request::extensions);
        let deadline = extensions.and_then(|extensions| {
            let deadline = DeadlineAt::of(extensions)?;
            let at = Instant::from_std(deadline.at);
            Some(Deadline {
                at,
                whole: at.saturating_duration_since(self.wait.since(now)),
                has_body: deadline.covers_body,
            })
        });
        Bounds {
            most_waiting: stack.max_waiting,
            deadline,
        }
    }

    /// Returns the cause of the wait, and the time until it ends.
    fn reason(&self, obstacle: Obstacle, now: Instant) -> (WaitCause, Option<Duration>) {
        let Some((cause, until)) = obstacle else {
            return self.waiter.wait(now);
        };
        (cause, until.map(|at| at.saturating_duration_since(now)))
    }
}

// === impl Wait ===

impl Wait {
    /// When the wait began, which is now if it has not.
    fn since(&self, now: Instant) -> Instant {
        self.0.as_ref().map_or(now, |wait| wait.since)
    }

    fn length(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since(now))
    }

    /// When the obstacle ends, and the call is to be polled again.
    fn ends(&self) -> Option<Instant> {
        self.0.as_ref()?.obstacle?.1
    }
}

/// Records the wait, with a permit or without one.
impl Drop for Wait {
    fn drop(&mut self) {
        let Some(wait) = &self.0 else {
            return;
        };
        let (cause, waited) = (wait.cause.texts().0, self.length(clock::now()));
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
