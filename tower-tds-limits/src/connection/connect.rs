//! One connect, from its permit to its socket.

use std::{
    error::Error,
    future::{Future, poll_fn},
    io,
    iter::successors,
    pin::pin,
    task::{Context, Poll, Waker},
};

use hyper::rt::{Read, Write};
use tokio::task;

use crate::{
    LimitError,
    connection::{BoxError, ConnectionPermit, LimitedIo},
};

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
            return Poll::Ready(Err(LimitError::orphaned().into()));
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
