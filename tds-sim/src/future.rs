//! The future of the simulator's answers.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;

use crate::{Body, Error};

/// The answer of a [`Sim`](crate::Sim) on its way.
///
/// # Cancel safety
/// Dropping it is noted in the ledger as an aborted call, if it has been counted by then.
pub struct ResponseFuture(Pin<Box<dyn Future<Output = Answer> + Send>>);

type Answer = Result<Response<Body>, Error>;

// === impl ResponseFuture ===

impl ResponseFuture {
    pub(crate) fn new(answer: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }
}

impl Future for ResponseFuture {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
