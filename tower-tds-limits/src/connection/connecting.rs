//! One connect, from its permit to its socket, or to its end in the background.

use std::{
    error::Error,
    future::Future,
    io,
    iter::successors,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::time::{sleep, timeout};

use crate::connection::{
    BoxError, ConnectionPermit, LimitedIo,
    background::Begun,
    closing::{LONGEST_CLOSE, Socket, close, in_background},
};

/// What a connector does, so that it can be moved to the background.
pub(super) type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// A connect that has its permit.
///
/// Dropping it does not stop the connecting, because the server may accept it all the same: it
/// goes on in the background, is closed, and then the permit goes to the next.
pub(super) struct Connect<T: Socket> {
    /// There until it is over.
    under_way: Option<(Connecting<T>, ConnectionPermit)>,
    begun: Begun,
    /// Whether it was polled and not ready: something may have been sent.
    pending: bool,
}

// === impl Connect ===

impl<T: Socket> Connect<T> {
    pub(super) fn new(connecting: Connecting<T>, permit: ConnectionPermit, begun: Begun) -> Self {
        Self {
            under_way: Some((connecting, permit)),
            begun,
            pending: false,
        }
    }
}

impl<T: Socket> Future for Connect<T> {
    type Output = Result<LimitedIo<T>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((mut connecting, permit)) = self.under_way.take() else {
            // Polled after it was ready, which a future's contract leaves open.
            return Poll::Pending;
        };
        match connecting.as_mut().poll(cx) {
            Poll::Ready(Ok(socket)) => Poll::Ready(Ok(LimitedIo::new(socket, permit, self.begun))),
            Poll::Ready(Err(error)) => {
                failed(&error, self.pending, permit);
                Poll::Ready(Err(error))
            }
            Poll::Pending => {
                self.pending = true;
                self.under_way = Some((connecting, permit));
                Poll::Pending
            }
        }
    }
}

/// Sees it to its end: the server may accept it although nobody waits.
impl<T: Socket> Drop for Connect<T> {
    fn drop(&mut self) {
        if let Some((connecting, permit)) = self.under_way.take() {
            in_background(async move {
                match timeout(LONGEST_CLOSE, connecting).await {
                    Ok(Ok(socket)) => close(socket, permit),
                    Ok(Err(error)) => failed(&error, true, permit),
                    Err(_too_long) => drop(permit),
                }
            });
        }
    }
}

/// A connect has failed, `pending` before or at once. Unless that says that there is no connection,
/// the server may accept it yet: its first segment is sent again and again.
fn failed(error: &BoxError, pending: bool, permit: ConnectionPermit) {
    let error: &(dyn Error + 'static) = &**error;
    let mut causes = successors(Some(error), |error| (*error).source());
    let timed_out = match causes.find_map(|error| error.downcast_ref::<io::Error>()) {
        // Refused, unreachable, no such host.
        Some(error) => error.kind() == io::ErrorKind::TimedOut,
        None => pending,
    };
    if timed_out {
        in_background(async move {
            sleep(LONGEST_CLOSE).await;
            drop(permit);
        });
    }
}
