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
    header::{CONNECTION, HeaderValue},
};
use http_body::Body;
use tokio::time::{Instant, Sleep};
use tower_service::Service;
use tower_tds_outcome::{DeadlineAt, HandOver};

use super::{
    permit::{PermitBody, RequestPermit},
    sent::SentCall,
};
use crate::{
    account::Account,
    clock::{self, earlier, poll_timer},
    error::{BoxError, Error, RemainingWait, WaitCause},
    events,
    limiter::{Limiter, Stack},
    wait::{Deadline, Denial, Terms, waiter::Waiter},
};

/// Settings that all services of a layer share.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) limiter: Limiter,
    pub(super) max_waiting: usize,
    pub(super) answer: Option<Duration>,
}

/// Response future of [`RequestLimit`](crate::RequestLimit).
///
/// # Cancel safety
/// See [`RequestLimit`](crate::RequestLimit).
pub struct ResponseFuture<S: Service<Request<R>>, R> {
    state: State<S, R>,
    settings: Arc<Settings>,
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
    first_cause: WaitCause,
    /// Obstacle at the last poll.
    obstacle: Obstacle,
}

/// Obstacle of a waiting call.
#[derive(Debug, Clone, Copy)]
enum Obstacle {
    /// Readiness of the inner service.
    Readiness,
    /// End of a pause.
    Pause(Instant),
    /// A permit.
    Permit,
}

// === impl ResponseFuture ===

impl<S: Service<Request<R>>, R> ResponseFuture<S, R> {
    #[inline]
    pub(super) fn new(inner: S, request: Request<R>, settings: &Arc<Settings>) -> Self {
        let stack = &settings.limiter.stack;
        Self {
            state: State::Waiting(Waiting {
                inner,
                request: Some(request),
                waiter: Waiter::new(&stack.account, stack.line),
                wait: Wait(None),
            }),
            settings: Arc::clone(settings),
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
        let settings = &*this.settings;
        loop {
            match &mut this.state {
                State::Waiting(call) if call.request.is_some() => {
                    let now = clock::now();
                    let deadline = call.deadline();
                    match call.poll(cx, now, settings, deadline) {
                        Poll::Ready(Ok(permit)) => {
                            if let Some(sent) = call.send(permit, now, deadline) {
                                this.state = State::Sent(sent);
                            }
                        }
                        Poll::Ready(Err(error)) => {
                            this.state = State::Done;
                            return Poll::Ready(Err(error));
                        }
                        Poll::Pending => {
                            let ends = earlier(call.wait.ends(settings), deadline);
                            ready!(poll_timer(&mut this.timer, ends, cx));
                        }
                    }
                }
                State::Sent(call) => return call.poll(cx, settings.answer, &mut this.timer),
                // A call whose sending panicked has no request left.
                State::Waiting(_) | State::Done => return Poll::Pending,
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
        settings: &Settings,
        deadline: Option<Instant>,
    ) -> Poll<Result<RequestPermit, Error>>
    where
        S: Service<Request<R>>,
        S::Error: Into<BoxError>,
    {
        let stack = &settings.limiter.stack;
        if deadline.is_some_and(|deadline| deadline <= now) {
            let obstacle = self.wait.0.as_ref().map(|wait| wait.obstacle);
            let obstacle = obstacle.unwrap_or(Obstacle::Readiness);
            let cause = self.reason(obstacle, stack, now).cause;
            let error = Error::deadline(cause, self.wait.length(now));
            return Poll::Ready(Err(error));
        }
        let terms = Terms {
            most_waiting: settings.max_waiting,
            deadline: deadline.map(|at| Deadline {
                at,
                whole: at.saturating_duration_since(self.wait.since(now)),
                has_body: self.has_body(),
            }),
        };
        let obstacle = match self.inner.poll_ready(cx) {
            Poll::Ready(Ok(())) => match stack.pause.at(now) {
                None => Obstacle::Permit,
                Some(pause) if pause.is_long(now) => {
                    let error = Error::rejected(pause.wait(now));
                    return Poll::Ready(Err(error));
                }
                Some(pause) if deadline.is_some_and(|ends| ends <= pause.until()) => {
                    let error = Error::hopeless(pause.wait(now));
                    return Poll::Ready(Err(error));
                }
                Some(pause) => Obstacle::Pause(pause.until()),
            },
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::below(error))),
            Poll::Pending => Obstacle::Readiness,
        };
        let passed = match obstacle {
            Obstacle::Permit => self.waiter.poll_pass(cx, now, &terms),
            // The call keeps its place while later calls pass.
            _ => match self.waiter.skip(&terms) {
                Ok(()) => Poll::Pending,
                Err(full) => Poll::Ready(Err(full)),
            },
        };
        match passed {
            Poll::Ready(Ok(grant)) => {
                return Poll::Ready(Ok(RequestPermit::new(stack, grant)));
            }
            Poll::Ready(Err(denial)) => {
                let error = match denial {
                    Denial::Full => Error::rejected(self.reason(obstacle, stack, now)),
                    Denial::Late => {
                        let cause = self.reason(obstacle, stack, now).cause;
                        Error::hopeless(RemainingWait { cause, left: None })
                    }
                };
                return Poll::Ready(Err(error));
            }
            Poll::Pending => {}
        }
        if let Some(wait) = &mut self.wait.0 {
            wait.obstacle = obstacle;
        } else {
            self.wait.0 = Some(Box::new(Waited {
                since: now,
                first_cause: self.reason(obstacle, stack, now).cause,
                obstacle,
            }));
        }
        if self.wait.longest(settings).is_some_and(|ends| ends <= now) {
            let cause = self.reason(obstacle, stack, now).cause;
            let error = Error::timed_out(cause, self.wait.length(now));
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }

    /// Sends the request, in the same poll in which its permit was granted.
    #[inline]
    fn send<B>(
        &mut self,
        permit: RequestPermit,
        now: Instant,
        deadline: Option<Instant>,
    ) -> Option<SentCall<S::Future>>
    where
        S: Service<Request<R>, Response = Response<B>, Error: Into<BoxError> + 'static>,
        S::Future: Send + 'static,
        B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
    {
        let request = self.request.as_mut()?;
        if permit.grant.closes_socket {
            // Ends the connection with this response (RFC 9112, section 9.6).
            let close = HeaderValue::from_static("close");
            request.headers_mut().insert(CONNECTION, close);
        }
        let hand_over = HandOver::insert(request.extensions_mut());
        // No request is left if an earlier `call` panicked.
        let response = self.inner.call(self.request.take()?);
        Some(SentCall::new(response, permit, hand_over, now, deadline))
    }

    /// Returns the deadline in the request's extensions.
    #[inline]
    fn deadline(&self) -> Option<Instant> {
        let extensions = self.request.as_ref()?.extensions();
        DeadlineAt::of(extensions).map(Instant::from_std)
    }

    /// Whether the deadline ends with the response body.
    fn has_body(&self) -> bool {
        let extensions = self.request.as_ref().map(Request::extensions);
        extensions.is_some_and(DeadlineAt::covers_body)
    }

    /// Returns the cause of the wait, and the time until it ends.
    fn reason(&self, obstacle: Obstacle, stack: &Stack, now: Instant) -> RemainingWait {
        let cause = match (obstacle, stack.pause.at(now)) {
            (Obstacle::Permit, _) => return self.waiter.wait(now),
            (Obstacle::Pause(_), Some(pause)) => return pause.wait(now),
            (Obstacle::Pause(_), None) => WaitCause::Pause,
            (Obstacle::Readiness, _) => WaitCause::Readiness,
        };
        RemainingWait { cause, left: None }
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

    /// When the call is to be polled again: at the end of a pause, or when the wait is too long.
    fn ends(&self, settings: &Settings) -> Option<Instant> {
        let wait = self.0.as_ref()?;
        let pause = match wait.obstacle {
            Obstacle::Pause(until) => Some(until),
            Obstacle::Readiness | Obstacle::Permit => None,
        };
        earlier(self.longest(settings), pause)
    }

    /// When the wait reaches `max_wait`.
    fn longest(&self, settings: &Settings) -> Option<Instant> {
        let since = self.0.as_ref()?.since;
        since.checked_add(settings.limiter.limits().max_wait?)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(wait) = &self.0 {
            events::waited(wait.first_cause, self.length(clock::now()));
        }
    }
}
