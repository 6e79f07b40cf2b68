//! What is kept of a request that was given away.

use http::{Extensions, Request, Version};
use tokio::time::Instant;

use super::attempt::{Attempt, Deadline};
use super::replay::Replay;
use super::verdict::{self, Idempotent, Reuse};
use crate::tape::Tape;

/// The request as the next attempt will send it, or what its error needs if there is none.
pub(super) struct Kept<B> {
    pub(super) tape: Tape,
    spare: Option<Spare<B>>,
    /// The request's own deadline.
    pub(super) deadline: Option<Instant>,
}

struct Spare<B> {
    version: Version,
    extensions: Extensions,
    body: B,
}

// === impl Kept ===

impl<B> Kept<B> {
    /// Keeps all of a request, if its body can be sent twice and if that is `wanted`.
    #[inline]
    pub(super) fn new<P: Replay<B>>(request: &Request<B>, wanted: Option<&P>) -> Self {
        let mut tape = Tape::of(request.method(), request.uri());
        let spare = wanted.and_then(|replay| {
            let spare = Spare::new(request, replay)?;
            tape.add(request.headers())?;
            Some(spare)
        });
        Self {
            tape,
            spare,
            deadline: Deadline::of(request.extensions()),
        }
    }

    /// Whether there is a request to send.
    pub(super) const fn spare(&self) -> verdict::Spare {
        match self.spare {
            Some(_) => verdict::Spare::Kept,
            None => verdict::Spare::None,
        }
    }

    /// Whether it may run twice.
    pub(super) fn idempotent(&self) -> Idempotent {
        if self.tape.method().is_idempotent() {
            Idempotent::Yes
        } else {
            Idempotent::No
        }
    }

    /// Whether it may meet a connection that is closed, and go out again for that.
    pub(super) fn reuse(&self) -> Reuse {
        if self.tape.method().is_safe() {
            Reuse::Open
        } else {
            Reuse::Spent
        }
    }

    /// The request of attempt `number`, which can be sent once more if that is `wanted`.
    pub(super) fn request<P: Replay<B>>(
        &mut self,
        number: u32,
        wanted: Option<&P>,
    ) -> Option<Request<B>> {
        let spare = self.spare.take()?;
        let mut request = self.tape.request(spare.body)?;
        *request.version_mut() = spare.version;
        *request.extensions_mut() = spare.extensions;
        self.spare = wanted.and_then(|replay| Spare::new(&request, replay));
        request.extensions_mut().insert(Attempt { number });
        Some(request)
    }
}

// === impl Spare ===

impl<B> Spare<B> {
    #[inline]
    fn new<P: Replay<B>>(request: &Request<B>, replay: &P) -> Option<Self> {
        Some(Self {
            body: replay.replay(request.body())?,
            version: request.version(),
            extensions: request.extensions().clone(),
        })
    }
}
