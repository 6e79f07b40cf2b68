//! What is kept of a request that was given away.

use http::{Extensions, Request, Version};
use tokio::time::Instant;

use super::attempt::{Attempt, Deadline, Repeatable};
use super::replay::Replay;
use super::verdict::{self, Idempotent, Reuse};
use crate::tape::Tape;

/// The request as the next attempt will send it, or what its error needs if there is none.
///
/// Flat, and each field made where it stays: moving a body that was just cloned waits for the clone.
pub(super) struct Kept<B> {
    pub(super) tape: Tape,
    /// The second copy; without it the tape has no headers.
    body: Option<B>,
    extensions: Extensions,
    version: Version,
    /// The request's own deadline.
    pub(super) deadline: Option<Instant>,
}

// === impl Kept ===

impl<B> Kept<B> {
    /// Keeps all of a request, if its body can be sent twice and if that is `wanted`.
    #[inline]
    pub(super) fn new<P: Replay<B>>(request: &Request<B>, wanted: Option<&P>) -> Self {
        let mut tape = Tape::of(request.method(), request.uri());
        let body = wanted.and_then(|replay| replay.replay(request.body()));
        let extensions = if body.is_some() {
            tape.add(request.headers());
            request.extensions().clone()
        } else {
            Repeatable::alone(request.extensions())
        };
        Self {
            tape,
            body,
            extensions,
            version: request.version(),
            deadline: Deadline::of(request.extensions()),
        }
    }

    /// Whether there is a request to send.
    pub(super) const fn spare(&self) -> verdict::Spare {
        match self.body {
            Some(_) => verdict::Spare::Kept,
            None => verdict::Spare::None,
        }
    }

    /// Whether it may run twice.
    pub(super) fn idempotent(&self) -> Idempotent {
        Idempotent::of(self.tape.method(), &self.extensions)
    }

    /// Whether it may meet a connection that is closed, and go out again for that.
    pub(super) fn reuse(&self) -> Reuse {
        if self.tape.method().is_safe() {
            Reuse::Open
        } else {
            Reuse::Spent
        }
    }

    /// The request of an attempt, which can be sent once more if that is `wanted`.
    pub(super) fn request<P: Replay<B>>(
        &mut self,
        attempt: Attempt,
        wanted: Option<&P>,
    ) -> Option<Request<B>> {
        let mut request = self.tape.request(self.body.take()?)?;
        self.body = wanted.and_then(|replay| replay.replay(request.body()));
        *request.version_mut() = self.version;
        *request.extensions_mut() = self.extensions.clone();
        request.extensions_mut().insert(attempt);
        Some(request)
    }
}
