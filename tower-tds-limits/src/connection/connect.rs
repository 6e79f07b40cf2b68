//! One connect, from its permit to its socket.

use std::{
    error::Error,
    future::{Future, poll_fn},
    io,
    iter::successors,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use hyper::rt::{Read, Write};
use tokio::{
    task,
    time::{Instant, Sleep, sleep_until},
};

use crate::{
    LimitError, Limiter, clock,
    connection::{BoxError, ConnectionPermit, Connections, LimitedIo},
    wait::Waiter,
};

/// One wait for a permit.
#[derive(Debug)]
pub(super) struct Wait {
    waiter: Waiter<Connections>,
    origin: Option<Origin>,
    since: Instant,
    /// For the longest wait.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Task and waker of a first poll.
///
/// A pool that has found a free connection spawns the connect that it has begun: then both change.
/// The task alone proves nothing, because a call may be shared by several. The waker alone proves
/// nothing, because a task may move its futures from one combinator to another.
#[derive(Debug)]
pub(super) struct Origin {
    task: Option<task::Id>,
    waker: Waker,
}

// === impl Wait ===

impl Wait {
    pub(super) fn new(limiter: &Limiter) -> Self {
        let credential = &limiter.credential;
        Self {
            waiter: Waiter::new(&credential.connections, credential.line),
            origin: None,
            since: clock::now(),
            timer: None,
        }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// When the longest wait is over, or when the pool has abandoned the connect.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        limiter: &Limiter,
    ) -> Poll<Result<ConnectionPermit, LimitError>> {
        if Origin::is_left(&mut self.origin, cx) {
            return Poll::Ready(Err(LimitError::abandoned()));
        }
        let now = clock::now();
        if let Poll::Ready(Ok(line)) = self.waiter.poll_pass(cx, now, usize::MAX) {
            let permit = ConnectionPermit::new(&limiter.credential.connections, line);
            return Poll::Ready(Ok(permit));
        }
        let Some(longest) = limiter.limits().max_wait else {
            return Poll::Pending;
        };
        let waited = now.saturating_duration_since(self.since);
        if waited >= longest {
            let error = LimitError::bounded(longest, self.waiter.wait(now), waited);
            return Poll::Ready(Err(error));
        }
        // A bound that no clock reaches is none.
        if let Some(ends) = self.since.checked_add(longest) {
            let timer = self.timer.insert(Box::pin(sleep_until(ends)));
            let _pending = timer.as_mut().poll(cx);
        }
        Poll::Pending
    }
}

// === impl Origin ===

impl Origin {
    /// Whether this poll comes from elsewhere than the first one, which is recorded.
    pub(super) fn is_left(origin: &mut Option<Self>, cx: &Context<'_>) -> bool {
        let task = task::try_id();
        let first = origin.get_or_insert_with(|| Self {
            task,
            waker: cx.waker().clone(),
        });
        // A pool's executor spawns tokio tasks. A poll outside of one is a `block_on`.
        task.is_some() && task != first.task && !first.waker.will_wake(cx.waker())
    }
}

/// Connects with a permit, which stays with the socket.
///
/// A permit that is dropped here lingers: see [`ConnectionPermit`].
pub(super) async fn connect<T>(
    connecting: impl Future<Output = Result<T, BoxError>>,
    permit: ConnectionPermit,
) -> Result<LimitedIo<T>, BoxError>
where
    T: Read + Write + Send + Unpin + 'static,
{
    let mut connecting = pin!(connecting);
    let mut origin = None;
    let connected = poll_fn(|cx| {
        if Origin::is_left(&mut origin, cx) {
            return Poll::Ready(Err(LimitError::abandoned().into()));
        }
        connecting.as_mut().poll(cx)
    });
    match connected.await {
        Ok(socket) => Ok(LimitedIo::new(socket, permit)),
        Err(error) => {
            if is_over(&error) {
                permit.release();
            }
            Err(error)
        }
    }
}

/// Whether the error shows that there is no connection: refused, unreachable, no such host.
///
/// After a timeout there may be one yet, and an error of another type proves nothing.
fn is_over(error: &BoxError) -> bool {
    let error: &(dyn Error + 'static) = &**error;
    let mut causes = successors(Some(error), |error| (*error).source());
    let cause = causes.find_map(|error| error.downcast_ref::<io::Error>());
    cause.is_some_and(|error| error.kind() != io::ErrorKind::TimedOut)
}
