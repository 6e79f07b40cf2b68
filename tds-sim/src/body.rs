//! The body of an answer: bytes at hand, or a flow that takes its time and may break.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{entry::Entry, error::Error};

mod content;
mod flow;
mod pieces;
mod progress;
mod source;

pub(crate) use self::{content::Content, flow::Flow, pieces::Pieces, source::Source};

/// The body of an answer of the simulator.
///
/// # Cancel safety
/// Dropping it before its end writes the call off in the ledger as aborted.
///
/// # Errors
/// A frame is an error where a fault breaks the body off; on a socket the connection then breaks.
pub struct Body {
    form: Form,
    entry: Option<Entry>,
}

enum Form {
    Whole(Bytes),
    Flow(Pin<Box<Flow>>),
}

// === impl Body ===

impl Body {
    /// These bytes and nothing else.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self {
            form: Form::Whole(bytes.into()),
            entry: None,
        }
    }

    /// Whatever flows.
    pub(crate) fn flow(flow: Flow) -> Self {
        Self {
            form: Form::Flow(Box::pin(flow)),
            entry: None,
        }
    }

    /// The same body, at whose end the call ends.
    pub(crate) fn with(mut self, entry: Entry) -> Self {
        self.entry = Some(entry);
        self.settle();
        self
    }

    /// Completes the call as soon as nothing is left: hyper does not poll a body that has ended.
    fn settle(&mut self) {
        if http_body::Body::is_end_stream(self)
            && let Some(entry) = self.entry.take()
        {
            entry.complete();
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let piece = match &mut self.form {
            Form::Whole(bytes) if bytes.is_empty() => None,
            Form::Whole(bytes) => Some(Ok(std::mem::take(bytes))),
            Form::Flow(flow) => ready!(flow.as_mut().poll_piece(cx)),
        };
        self.settle();
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.form {
            Form::Whole(bytes) => bytes.is_empty(),
            Form::Flow(flow) => flow.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            Form::Whole(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            // The head says the length. A hint that a truncated body then breaks would be a lie.
            Form::Flow(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}
