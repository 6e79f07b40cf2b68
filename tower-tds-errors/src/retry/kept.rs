//! What is kept of a request that was given away.

use http::{Extensions, Method, Request, Version};
use tokio::time::Instant;

use super::attempt::{Attempt, Deadline};
use super::replay::Replay;
use super::verdict::{self, Idempotent};
use crate::tape::Tape;

/// The request as the next attempt will send it, or what its error needs if there is none.
pub(super) struct Kept<B> {
    pub(super) method: Method,
    version: Version,
    pub(super) tape: Tape,
    /// The request's own deadline.
    pub(super) deadline: Option<Instant>,
    spare: Option<Spare<B>>,
}

/// What no tape can hold.
struct Spare<B> {
    extensions: Extensions,
    body: B,
}

// === impl Kept ===

impl<B> Kept<B> {
    /// Keeps all of a request whose body can be sent twice.
    pub(super) fn new(request: &Request<B>, replay: &impl Replay<B>) -> Self {
        let mut kept = Self::bare(request);
        if let Some(body) = replay.replay(request.body()) {
            kept.spare = kept.tape.add(request.headers()).map(|()| Spare {
                extensions: request.extensions().clone(),
                body,
            });
        }
        kept
    }

    /// Keeps what an error needs.
    pub(super) fn bare(request: &Request<B>) -> Self {
        Self {
            method: request.method().clone(),
            version: request.version(),
            tape: Tape::new(request.uri()),
            deadline: Deadline::of(request.extensions()),
            spare: None,
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
        if self.method.is_idempotent() {
            Idempotent::Yes
        } else {
            Idempotent::No
        }
    }

    /// The request of attempt `number`. While there is `more` to come it can be sent once more.
    pub(super) fn request(
        &mut self,
        number: u32,
        more: Option<&impl Replay<B>>,
    ) -> Option<Request<B>> {
        let spare = self.spare.take()?;
        if let Some(body) = more.and_then(|replay| replay.replay(&spare.body)) {
            let extensions = spare.extensions.clone();
            self.spare = Some(Spare { extensions, body });
        }
        let mut request = Request::new(spare.body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.tape.uri()?;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.tape.headers()?;
        *request.extensions_mut() = spare.extensions;
        request.extensions_mut().insert(Attempt { number });
        Some(request)
    }
}
