//! Body of a response: bytes in memory, or a paced flow that a fault can end early.

use std::{
    fmt,
    io::Read,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::{Frame, SizeHint};
use serde::Serialize;
use tokio::sync::mpsc;

use self::flow::{Flow, Next};
use crate::{clock::Clock, entry::Entry, error::Error, fault::DataFault};

mod flow;
mod source;

pub(crate) use self::source::{Coding, Source};

/// Body of a simulated response.
///
/// # Cancel safety
/// Dropping it before its end aborts the call in the ledger.
///
/// # Errors
/// If a fault ends the body, the last frame is an error. On a socket, the connection ends instead.
pub struct Body {
    form: Form,
    entry: Option<Entry>,
}

enum Form {
    Whole(Bytes),
    /// Pieces that are made while the body is read, without an end.
    Stream(mpsc::Receiver<Bytes>),
    /// Flow that waits for its next piece.
    Flow(Next),
    /// A fault has ended the body early.
    Broken,
}

/// Bytes of a response, with their rate and encoding.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) source: Source,
    /// Most bytes a second on the wire.
    pub(crate) rate: Option<u64>,
    /// Whether the head has no `Content-Length`, as also if the body is compressed.
    pub(crate) is_chunked: bool,
    pub(crate) coding: Option<Coding>,
}

// === impl Body ===

impl Body {
    /// Creates a body of these bytes.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self {
            form: Form::Whole(bytes.into()),
            entry: None,
        }
    }

    /// Returns a response with the pieces that are sent to it.
    pub(crate) fn stream(kind: &'static str, pieces: mpsc::Receiver<Bytes>) -> Response<Self> {
        let mut response = Self::page(StatusCode::OK, kind, "");
        response.body_mut().form = Form::Stream(pieces);
        response
    }

    /// Returns a response with these bytes and this media type, without an entry in the ledger.
    pub(crate) fn page(
        status: StatusCode,
        kind: &'static str,
        bytes: impl Into<Bytes>,
    ) -> Response<Self> {
        let mut response = Response::new(Self::whole(bytes));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// Returns a response in JSON.
    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Self> {
        let text = serde_json::to_string(value).unwrap_or_default();
        Self::page(status, "application/json", text)
    }

    /// Completes the call with the last byte, because hyper does not poll a body that has ended.
    fn complete_at_end(&mut self) {
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
            Form::Stream(pieces) => ready!(pieces.poll_recv(cx)).map(Ok),
            Form::Flow(next) => {
                let (flow, piece) = ready!(next.as_mut().poll(cx));
                self.form = match &piece {
                    _ if flow.is_at_end => Form::Whole(Bytes::new()),
                    Some(Ok(_)) => Form::Flow(flow.next()),
                    _ => Form::Broken,
                };
                piece
            }
            Form::Broken => None,
        };
        self.complete_at_end();
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.form {
            Form::Whole(bytes) => bytes.is_empty(),
            Form::Stream(_) | Form::Flow(_) | Form::Broken => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            Form::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            // The head already has the length. An exact hint would be wrong if a fault cuts the
            // body.
            Form::Stream(_) | Form::Flow(_) | Form::Broken => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

// === impl Content ===

impl Content {
    /// Creates content of these bytes, sent as fast as the client reads.
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self {
            source: Source::bytes(bytes),
            rate: None,
            is_chunked: false,
            coding: None,
        }
    }

    /// Makes the body, completes the head, and lets the call end with the body.
    pub(crate) fn finish(
        response: Response<Self>,
        entry: Entry,
        fault: Option<DataFault>,
        clock: &Arc<Clock>,
    ) -> Response<Body> {
        let (mut head, mut content) = response.into_parts();
        if let Some(coding) = content.coding {
            let coding = HeaderValue::from_static(coding.name());
            head.headers.insert(CONTENT_ENCODING, coding);
        }
        if fault == Some(DataFault::Endless) {
            content.source = Source::lines(u64::MAX);
            (content.coding, content.is_chunked) = (None, true);
        }
        let length = content.length();
        if let Some(length) = length {
            head.headers
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let rate = content.rate.filter(|rate| *rate > 0);
        let form = match content.source.at_hand() {
            Some(bytes) if fault.is_none() && rate.is_none() && content.coding.is_none() => {
                Form::Whole(bytes)
            }
            _ => {
                let pieces: Box<dyn Read + Send> = match content.coding {
                    Some(coding) => coding.encode(content.source),
                    None => Box::new(content.source),
                };
                let clock = Arc::clone(clock);
                let flow = Flow::new(pieces, length, rate, fault, clock, entry.socket.clone());
                match flow.is_at_end {
                    true => Form::Whole(Bytes::new()),
                    false => Form::Flow(flow.next()),
                }
            }
        };
        let mut body = Body {
            form,
            entry: Some(entry),
        };
        body.complete_at_end();
        Response::from_parts(head, body)
    }

    /// Returns the length for the head, if it is known.
    fn length(&self) -> Option<u64> {
        let known = self.coding.is_none() && !self.is_chunked;
        known.then(|| self.source.length())
    }
}
