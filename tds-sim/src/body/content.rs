//! The content of an answer, before faults and pauses make a flow of it.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Response,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};

use crate::{
    body::{Body, Flow, Pieces, Source},
    config::Framing,
    delay::Delay,
    encoding::Coding,
    entry::Entry,
    fault::{BodyFault, BodyFaults},
};

/// The bytes of an answer, how fast they come and how they are encoded.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Stuff,
    rate: Option<u64>,
    framing: Framing,
    coding: Option<Coding>,
}

#[derive(Debug)]
enum Stuff {
    Bytes(Bytes),
    Lines(u64),
}

// === impl Content ===

impl Content {
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::new(Stuff::Bytes(bytes.into()))
    }

    /// So many bytes of numbered lines.
    pub(crate) fn lines(length: u64) -> Self {
        Self::new(Stuff::Lines(length))
    }

    fn new(bytes: Stuff) -> Self {
        Self {
            bytes,
            rate: None,
            framing: Framing::Length,
            coding: None,
        }
    }

    /// At most so many bytes a second on the wire.
    pub(crate) fn at_rate(self, rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            ..self
        }
    }

    pub(crate) fn framed(self, framing: Framing) -> Self {
        Self { framing, ..self }
    }

    pub(crate) fn encoded(self, coding: Option<Coding>) -> Self {
        Self { coding, ..self }
    }

    /// Makes the body, completes the head, and lets the call end with the body.
    pub(crate) fn finish(
        response: Response<Self>,
        entry: Entry,
        faults: BodyFaults,
    ) -> Response<Body> {
        let (mut head, content) = response.into_parts();
        if let Some(coding) = content.coding {
            head.headers.insert(CONTENT_ENCODING, coding.value());
        }
        let length = content
            .length()
            .filter(|_| faults.fault != Some(BodyFault::Endless));
        if let Some(length) = length {
            head.headers
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let socket = entry.socket().map(Arc::clone);
        let body = match content {
            Self {
                bytes: Stuff::Bytes(bytes),
                rate: None,
                coding: None,
                ..
            } if faults.fault.is_none() && faults.delay == Delay::None => Body::whole(bytes),
            Self { rate, .. } if faults.fault == Some(BodyFault::Endless) => {
                Body::flow(Flow::new(Pieces::endless(), None, rate, faults, socket))
            }
            content => {
                let rate = content.rate;
                Body::flow(Flow::new(
                    content.into_pieces(),
                    length,
                    rate,
                    faults,
                    socket,
                ))
            }
        };
        Response::from_parts(head, body.with(entry))
    }

    /// What the head says about the length.
    fn length(&self) -> Option<u64> {
        if self.coding.is_some() || self.framing == Framing::Chunked {
            return None;
        }
        match &self.bytes {
            Stuff::Bytes(bytes) => u64::try_from(bytes.len()).ok(),
            Stuff::Lines(length) => Some(*length),
        }
    }

    fn into_pieces(self) -> Pieces {
        let source = match self.bytes {
            Stuff::Bytes(bytes) => Source::bytes(bytes),
            Stuff::Lines(length) => Source::lines(length),
        };
        match self.coding {
            Some(coding) => coding.encode(source),
            None => Pieces::of(source),
        }
    }
}
