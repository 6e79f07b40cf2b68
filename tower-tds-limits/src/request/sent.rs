//! A call that was passed on, until its response head: whether it was sent, and its completion in
//! the background.

use std::{
    error,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use http::Response;
use http_body::Body;
#[cfg(feature = "connect")]
use hyper_util::client::legacy;
use tokio::{
    runtime::Handle,
    time::{Instant, Sleep, timeout_at},
};
use tower_tds_outcome::{Cause, HandOver, Handed, Outcome, chain};

use super::permit::{PermitBody, RequestPermit};
use crate::{
    clock::{self, poll_timer},
    error::{BoxError, Decision, Error, WaitCause},
};

/// Call that was passed on, until its response head. Dropping it gives it up.
pub(super) struct SentCall<F> {
    /// `None` once the call has ended.
    rest: Option<Rest<F>>,
    called_at: Instant,
    /// When the call was first seen to be sent.
    sent_at: Option<Instant>,
    deadline: Option<Instant>,
    /// Completes the call in the background. A function pointer, so that `Drop` needs no bounds.
    complete: fn(Rest<F>, Instant),
}

/// Response to come, and the permit of its request. The future is boxed, so that a task can take it
/// over.
struct Rest<F> {
    response: Pin<Box<F>>,
    permit: RequestPermit,
    hand_over: HandOver,
}

// === impl SentCall ===

impl<F> SentCall<F> {
    #[inline]
    pub(super) fn new<B, E>(
        response: F,
        permit: RequestPermit,
        hand_over: HandOver,
        called_at: Instant,
        deadline: Option<Instant>,
    ) -> Self
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let response = Box::pin(response);
        Self {
            rest: Some(Rest {
                response,
                permit,
                hand_over,
            }),
            called_at,
            sent_at: None,
            deadline,
            complete,
        }
    }

    /// Waits for the response head, until the deadline or the end of the time for the `answer`.
    #[inline]
    pub(super) fn poll<B, E>(
        &mut self,
        cx: &mut Context<'_>,
        timer: &mut Option<Pin<Box<Sleep>>>,
    ) -> Poll<Result<Response<PermitBody<B>>, Error>>
    where
        F: Future<Output = Result<Response<B>, E>>,
        B: Body,
        E: Into<BoxError>,
    {
        // Nothing may be sent after the deadline, so a request that may not have been sent yet is not
        // polled any more.
        let is_late = timer.is_some() && self.deadline.is_some_and(|ends| ends <= clock::now());
        let may_send = !is_late || self.handed() == Handed::Taken;
        let Some(rest) = &mut self.rest else {
            return Poll::Pending;
        };
        let answer = rest.permit.stack.answer;
        if may_send
            && let Poll::Ready(response) = rest.response.as_mut().poll(cx)
            && let Some(rest) = self.rest.take()
        {
            return Poll::Ready(rest.received(response));
        }
        let answer = answer.and_then(|answer| self.sent_at().checked_add(answer));
        ready!(poll_timer(timer, [answer, self.deadline], cx));
        let now = clock::now();
        let waited = now.saturating_duration_since(self.called_at);
        let decision = if self.deadline.is_some_and(|ends| ends <= now) {
            Decision::Deadline
        } else {
            Decision::TimedOut
        };
        let cause = self.end(Some(decision));
        Poll::Ready(Err(Error::new(decision, cause, Some(waited))))
    }

    fn handed(&self) -> Handed {
        let rest = self.rest.as_ref();
        rest.map_or(Handed::Unknown, |rest| rest.hand_over.handed())
    }

    /// When the request was sent, as far as that is known.
    ///
    /// A request that is not sent yet is checked again one timeout from now. Even if it is sent now,
    /// it has not waited longer than the timeout then.
    fn sent_at(&mut self) -> Instant {
        match self.handed() {
            Handed::Held => clock::now(),
            Handed::Taken => *self.sent_at.get_or_insert_with(clock::now),
            _ => self.called_at,
        }
    }

    /// Ends the call, which its caller has dropped if it is of no `decision`. Returns what it waited for. A
    /// permit that is not withdrawn counts as sent until the response proves it.
    fn end(&mut self, decision: Option<Decision>) -> WaitCause {
        let Some(mut rest) = self.rest.take() else {
            return WaitCause::Response;
        };
        let handed = rest.hand_over.give_up();
        if handed == Handed::Held {
            drop(rest.response);
            rest.permit.withdraw();
            return WaitCause::Connection;
        }
        let longest = clock::now() + LONGEST.min(rest.permit.stack.limits.lost_after);
        let until = match (handed, decision) {
            (Handed::Taken | Handed::Ended, None | Some(Decision::Deadline)) => longest,
            // The request may not have been sent yet, and is not sent after the deadline.
            (_, None) => self.deadline.map_or(longest, |ends| ends.min(longest)),
            // The socket of a call whose answer is late has to end now, so that its permit is free
            // after 30 s even if the server is gone.
            _ => return WaitCause::Response,
        };
        (self.complete)(rest, until);
        WaitCause::Response
    }
}

impl<F> Drop for SentCall<F> {
    fn drop(&mut self) {
        self.end(None);
    }
}

// === impl Rest ===

impl<F> Rest<F> {
    /// Records a response or an error. The body holds the permit, unless the call has ended.
    #[inline]
    fn received<B: Body, E: Into<BoxError>>(
        mut self,
        response: Result<Response<B>, E>,
    ) -> Result<Response<PermitBody<B>>, Error> {
        match response {
            Ok(response) => {
                let mut permit = self.permit;
                let outcome = Outcome::of_response(&response);
                let is_whole = response.body().is_end_stream();
                let permit = permit.record(outcome, is_whole).then_some(permit);
                Ok(response.map(|body| PermitBody::new(body, permit)))
            }
            Err(error) => {
                let error = error.into();
                match of_error(&*error) {
                    Outcome::Lost if self.hand_over.handed() == Handed::Ended => {
                        let lost_after = self.permit.stack.limits.lost_after;
                        self.permit.lose(ENDED.min(lost_after));
                    }
                    outcome => drop(self.permit.record(outcome, true)),
                }
                Err(Error::below(error))
            }
        }
    }
}

/// Completes a call in the background, if there is a runtime.
fn complete<F, B, E>(rest: Rest<F>, until: Instant)
where
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(timeout_at(until, read_to_end(rest))));
    }
}

/// Reads a response to its end, within [`MOST`].
async fn read_to_end<F, B, E>(mut rest: Rest<F>)
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data: Buf>,
    E: Into<BoxError>,
{
    let response = rest.response.as_mut().await;
    let Ok(response) = rest.received(response) else {
        return;
    };
    let mut body = pin!(response.into_body());
    let mut left = MOST;
    while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let length = frame.data_ref().map_or(0, Buf::remaining);
        let Some(rest) = left.checked_sub(length) else {
            return;
        };
        left = rest;
    }
}

/// Reads an error: the outcome that it carries, or that of an error of hyper-util.
#[cold]
fn of_error(error: &(dyn error::Error + 'static)) -> Outcome {
    let known = chain(error).find_map(|link| {
        // Once there was a connection, no source can show that nothing was sent on it.
        #[cfg(feature = "connect")]
        if let Some(error) = link.downcast_ref::<legacy::Error>() {
            let is_unsent = error.is_connect();
            return Some(if is_unsent {
                Outcome::Unsent
            } else {
                Outcome::Lost
            });
        }
        let is_carried = link.is::<Cause>();
        is_carried.then(|| Outcome::of_error(link)).flatten()
    });
    known.unwrap_or(Outcome::Lost)
}

/// Longest completion of a call, unless [`Limits::lost_after`](crate::Limits::lost_after) is shorter:
/// beyond that, it gains nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// Reading this much costs less time than a new connection and its handshake.
const MOST: usize = 256 * 1024;

/// How long after the peer has ended a connection its request may still be counted by what is behind
/// it, which is an assumption.
const ENDED: Duration = Duration::from_millis(500);

#[cfg(all(test, feature = "connect"))]
mod tests;
