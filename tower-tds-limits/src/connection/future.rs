use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::{
    Error, LimitError,
    connection::{ConnectionPermit, LimitedIo},
};

pin_project! {
    /// The connecting of a [`ConnectionLimit`](crate::ConnectionLimit).
    ///
    /// # Cancel safety
    /// Dropping it gives the permit back.
    pub struct ConnectFuture<Fut> {
        #[pin]
        state: State<Fut>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<Fut> {
        // ## Called => done
        Called {
            #[pin]
            io: Fut,
            permit: Option<ConnectionPermit>,
        },
        // ## Refused => done
        Refused { error: Option<LimitError> },
    }
}

// === impl ConnectFuture ===

impl<Fut> ConnectFuture<Fut> {
    pub(super) fn called(io: Fut, permit: ConnectionPermit) -> Self {
        Self {
            state: State::Called {
                io,
                permit: Some(permit),
            },
        }
    }

    pub(super) fn refused(error: LimitError) -> Self {
        Self {
            state: State::Refused { error: Some(error) },
        }
    }
}

impl<Fut, T, E> Future for ConnectFuture<Fut>
where
    Fut: Future<Output = Result<T, E>>,
{
    type Output = Result<LimitedIo<T>, Error<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Called { io, permit } => {
                let outcome = ready!(io.poll(cx));
                let permit = permit.take();
                Poll::Ready(
                    outcome
                        .map(|io| LimitedIo::new(io, permit))
                        .map_err(Error::Inner),
                )
            }
            StateProjection::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(Error::Limit(error))),
                // Polled after it was ready, which a future's contract leaves open.
                None => Poll::Pending,
            },
        }
    }
}

impl<Fut> fmt::Debug for ConnectFuture<Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectFuture").finish_non_exhaustive()
    }
}
