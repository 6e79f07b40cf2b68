use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    Request, Response,
    header::{CONNECTION, HeaderValue},
};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;
use tower_tds_outcome::{DeadlineAt, ReadOutcome};

use super::{
    layer::{Detached, Settings},
    permit::{PermitBody, RequestPermit},
    sent::{Complete, SentCall, Watch},
};
use crate::{
    account::Account,
    clock,
    error::{BoxError, Error, RemainingWait, WaitCause},
    events,
    limiter::Stack,
    wait::{Deadline, Denial, Terms, waiter::Waiter},
};

pin_project! {
    /// Response future of [`RequestLimit`](crate::RequestLimit).
    ///
    /// # Cancel safety
    /// See [`RequestLimit`](crate::RequestLimit).
    pub struct ResponseFuture<S, R, F, C, M = ()> {
        #[pin]
        state: State<S, R, C>,
        settings: Arc<Settings<F>>,
        // Timer of the next bound, created when the call first waits.
        timer: Option<Pin<Box<Sleep>>>,
        complete: Option<Complete<C, F>>,
        mode: PhantomData<M>,
    }

    impl<S, R, F, C, M> PinnedDrop for ResponseFuture<S, R, F, C, M> {
        fn drop(this: Pin<&mut Self>) {
            this.give_up();
        }
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, R, C> {
        // ## Waiting => (Sent | Done)
        Waiting { call: Waiting<S, R> },
        // ## Sent => Done
        Sent {
            #[pin]
            call: SentCall<C>,
        },
        Done,
    }
}

/// Call that was not sent yet.
struct Waiting<S, R> {
    inner: S,
    /// `None` once it is sent.
    request: Option<R>,
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

impl<S, R, F, C, M> ResponseFuture<S, Request<R>, F, C, M> {
    #[inline]
    pub(super) fn new(
        inner: S,
        request: Request<R>,
        settings: &Arc<Settings<F>>,
        complete: Option<Complete<C, F>>,
    ) -> Self {
        let call = Waiting {
            inner,
            request: Some(request),
            waiter: Waiter::new(&settings.limiter.stack.account, settings.limiter.stack.line),
            wait: Wait(None),
        };
        Self {
            state: State::Waiting { call },
            settings: Arc::clone(settings),
            timer: None,
            complete,
            mode: PhantomData,
        }
    }

    /// Waits, sends, and waits for the response head. `hold` converts the future of the inner
    /// service into the form that this future keeps.
    #[inline]
    fn poll_call<B>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        hold: impl Fn(S::Future) -> C,
    ) -> Poll<Result<Response<PermitBody<B>>, Error>>
    where
        S: Service<Request<R>, Response = Response<B>>,
        S::Error: Into<BoxError>,
        C: Future<Output = Result<Response<B>, S::Error>>,
        F: ReadOutcome,
        B: Body,
    {
        loop {
            let mut this = self.as_mut().project();
            let settings = &**this.settings;
            match this.state.as_mut().project() {
                StateProjection::Waiting { call } if call.request.is_some() => {
                    let now = clock::now();
                    let deadline = call.deadline();
                    match call.poll(cx, now, settings, deadline) {
                        Poll::Ready(Ok(permit)) => {
                            if let Some(sent) = call.send(permit, now, settings, deadline, &hold) {
                                this.state.set(State::Sent { call: sent });
                            }
                        }
                        Poll::Ready(Err(error)) => {
                            this.state.set(State::Done);
                            return Poll::Ready(Err(error));
                        }
                        Poll::Pending => {
                            let ends = earlier(call.wait.ends(settings), deadline);
                            if poll_timer(this.timer, ends, cx).is_pending() {
                                return Poll::Pending;
                            }
                        }
                    }
                }
                StateProjection::Sent { mut call } => {
                    // Nothing may be sent after the deadline, so a request that may still wait for
                    // its connection is not polled any more.
                    let is_late = this.timer.is_some()
                        && call.is_held()
                        && call.deadline.is_some_and(|ends| ends <= clock::now());
                    if !is_late {
                        let polled = call.as_mut().poll(cx, &settings.reader);
                        if polled.is_ready() {
                            return polled;
                        }
                    }
                    let answer = settings.answer;
                    let answer = answer.and_then(|answer| call.sent_at().checked_add(answer));
                    if poll_timer(this.timer, earlier(answer, call.deadline), cx).is_pending() {
                        return Poll::Pending;
                    }
                    let (watch, called_at, deadline) =
                        (call.watch.clone(), call.called_at, call.deadline);
                    let now = clock::now();
                    // Drops the call, which shows whether it was sent. It is not completed in the
                    // background. A call that may be unsent must not be sent after the deadline.
                    // The socket of a call whose answer is late has to end now, so that its permit
                    // is free after 30 s even if the server is gone.
                    if watch.is_some() && deadline.is_some_and(|deadline| deadline <= now) {
                        self.as_mut().give_up();
                    } else {
                        call.abandon();
                    }
                    self.as_mut().project().state.set(State::Done);
                    let waited = now.saturating_duration_since(called_at);
                    let cause = if watch.is_some_and(|watch| watch.is_unsent()) {
                        WaitCause::Connection
                    } else {
                        WaitCause::Response
                    };
                    let error = if deadline.is_some_and(|deadline| deadline <= now) {
                        Error::deadline(cause, waited)
                    } else {
                        Error::unanswered(cause, waited)
                    };
                    return Poll::Ready(Err(error));
                }
                // A call whose sending panicked has no request left.
                StateProjection::Waiting { .. } | StateProjection::Done => return Poll::Pending,
            }
        }
    }
}

impl<S, R, F, C, M> ResponseFuture<S, R, F, C, M> {
    /// Completes a sent call in the background, or drops it. A call that was not sent is only
    /// dropped.
    fn give_up(self: Pin<&mut Self>) {
        let this = self.project();
        if let StateProjection::Sent { call } = this.state.project() {
            match this.complete {
                Some(complete) => complete(call, this.settings),
                None => call.abandon(),
            }
        }
    }
}

impl<S, R, F, B> Future for ResponseFuture<S, Request<R>, F, S::Future>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    F: ReadOutcome,
    B: Body,
{
    type Output = Result<Response<PermitBody<B>>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_call(cx, |call| call)
    }
}

/// The inner future is boxed, so that a task can take the call over.
impl<S, R, F, B> Future for ResponseFuture<S, Request<R>, F, Pin<Box<S::Future>>, Detached>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    F: ReadOutcome,
    B: Body,
{
    type Output = Result<Response<PermitBody<B>>, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_call(cx, Box::pin)
    }
}

impl<S, R, F, C, M> fmt::Debug for ResponseFuture<S, R, F, C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

// === impl Waiting ===

impl<S, R> Waiting<S, Request<R>> {
    /// Waits for the inner service and for a permit.
    #[inline]
    fn poll<F>(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        settings: &Settings<F>,
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
            _ => match self.waiter.skip(settings.max_waiting) {
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
                    Denial::Overload(outlook) => {
                        Error::overload(outlook.cause, outlook.ahead, outlook.wait)
                    }
                    Denial::Late => {
                        let cause = self.reason(obstacle, stack, now).cause;
                        Error::deadline(cause, self.wait.length(now))
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
    fn send<F, C>(
        &mut self,
        permit: RequestPermit,
        now: Instant,
        settings: &Settings<F>,
        deadline: Option<Instant>,
        hold: impl Fn(S::Future) -> C,
    ) -> Option<SentCall<C>>
    where
        S: Service<Request<R>>,
    {
        let request = self.request.as_mut()?;
        if permit.grant.closes_socket {
            // Ends the connection with this response (RFC 9112, section 9.6).
            let close = HeaderValue::from_static("close");
            request.headers_mut().insert(CONNECTION, close);
        }
        let watch = settings
            .over_hyper_http1
            .then(|| Watch::insert(request.extensions_mut(), settings.answer.is_some()));
        // No request is left if an earlier `call` panicked.
        let response = hold(self.inner.call(self.request.take()?));
        Some(SentCall {
            response: Some(response),
            permit: Some(permit),
            watch,
            called_at: now,
            deadline,
        })
    }

    /// Returns the deadline in the request's extensions.
    #[inline]
    fn deadline(&self) -> Option<Instant> {
        let extensions = self.request.as_ref()?.extensions();
        DeadlineAt::of(extensions).map(Instant::from_std)
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
    fn ends<F>(&self, settings: &Settings<F>) -> Option<Instant> {
        let wait = self.0.as_ref()?;
        let pause = match wait.obstacle {
            Obstacle::Pause(until) => Some(until),
            Obstacle::Readiness | Obstacle::Permit => None,
        };
        earlier(self.longest(settings), pause)
    }

    /// When the wait reaches `max_wait`.
    fn longest<F>(&self, settings: &Settings<F>) -> Option<Instant> {
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

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Waits until `ends`, if it is set.
fn poll_timer(
    timer: &mut Option<Pin<Box<Sleep>>>,
    ends: Option<Instant>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let Some(ends) = ends else {
        return Poll::Pending;
    };
    // The clock decides, because the timer of a layer above may fire before this one.
    if ends <= clock::now() {
        return Poll::Ready(());
    }
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(ends)));
    if timer.deadline() != ends {
        timer.as_mut().reset(ends);
    }
    timer.as_mut().poll(cx)
}
