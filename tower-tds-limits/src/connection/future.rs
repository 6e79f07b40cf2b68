use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, Write};

use crate::{
    LimitError,
    connection::{
        BoxError, ConnectionPermit, LimitedIo,
        background::Begun,
        closing::{abandon, failed},
    },
};

/// The connecting of a [`ConnectionLimit`](crate::ConnectionLimit).
///
/// # Cancel safety
/// Dropping it does not stop the connecting, because the server may accept it all the same: it
/// goes on in the background, is closed, and then the permit goes to the next. One that failed
/// because it took too long may be accepted all the same, too, and keeps its permit for 30 s.
pub struct ConnectFuture<F> {
    state: State<F>,
    /// Sees it to its end without a caller: what is known of it where it is made.
    abandon: fn(Pin<Box<F>>, ConnectionPermit),
}

enum State<F> {
    // ## Called => Over
    Called {
        /// Boxed, so that it can be moved to the background when this future is dropped.
        connecting: Pin<Box<F>>,
        permit: ConnectionPermit,
        begun: Begun,
        /// Whether it was polled and not ready: something may have been sent.
        pending: bool,
    },
    // ## Refused => Over
    Refused(LimitError),
    Over,
}

// === impl ConnectFuture ===

impl<F, T, E> ConnectFuture<F>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Read + Write + Send + Unpin + 'static,
    E: Into<BoxError>,
{
    pub(super) fn called(connecting: F, permit: ConnectionPermit, begun: Begun) -> Self {
        Self::new(State::Called {
            connecting: Box::pin(connecting),
            permit,
            begun,
            pending: false,
        })
    }

    pub(super) fn refused(error: LimitError) -> Self {
        Self::new(State::Refused(error))
    }

    fn new(state: State<F>) -> Self {
        let abandon = abandon;
        Self { state, abandon }
    }
}

impl<F> ConnectFuture<F> {
    fn end(&mut self) -> State<F> {
        std::mem::replace(&mut self.state, State::Over)
    }
}

impl<F, T, E> Future for ConnectFuture<F>
where
    F: Future<Output = Result<T, E>>,
    T: Read + Write + Send + Unpin + 'static,
    E: Into<BoxError>,
{
    type Output = Result<LimitedIo<T>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.state {
            State::Called {
                connecting,
                pending,
                ..
            } => match connecting.as_mut().poll(cx) {
                Poll::Ready(outcome) => Some(outcome.map_err(Into::into)),
                Poll::Pending => {
                    *pending = true;
                    return Poll::Pending;
                }
            },
            State::Refused(_) | State::Over => None,
        };
        match (self.end(), outcome) {
            (State::Called { permit, begun, .. }, Some(Ok(socket))) => {
                Poll::Ready(Ok(LimitedIo::new(socket, permit, begun)))
            }
            (
                State::Called {
                    permit, pending, ..
                },
                Some(Err(error)),
            ) => {
                failed(&error, pending, permit);
                Poll::Ready(Err(error))
            }
            (State::Refused(error), _) => Poll::Ready(Err(error.into())),
            // Polled after it was ready, which a future's contract leaves open.
            (State::Called { .. } | State::Over, _) => Poll::Pending,
        }
    }
}

impl<F> Drop for ConnectFuture<F> {
    fn drop(&mut self) {
        if let State::Called {
            connecting, permit, ..
        } = self.end()
        {
            (self.abandon)(connecting, permit);
        }
    }
}

impl<F> fmt::Debug for ConnectFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectFuture").finish_non_exhaustive()
    }
}
