//! What a socket carries, as far as its bytes tell.
//!
//! hyper keeps to itself whether a connection is idle: from outside, a body that is slow to come
//! looks the same. So the socket reads along.

use crate::connection::{message::Message, streams::Streams};

/// What is under way on one connection.
#[derive(Debug)]
pub(super) enum Exchange {
    /// So much of HTTP/2's preface has been written, and nothing else.
    // ## Begun => (Open | Http2 | Opaque)
    Begun(usize),
    /// HTTP/1.1: one request, and its response.
    // ## Open => Opaque
    Open {
        request: Message,
        response: Message,
    },
    // ## Http2 => Opaque
    Http2(Streams),
    Opaque,
}

/// What is known of a socket's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Nothing has been sent yet.
    Unused,
    /// A response is awaited or under way.
    Busy,
    /// The whole response is here; the request is still being sent, or was given up.
    Unsent,
    /// Each request has been sent, and answered, whole.
    Free,
    /// No telling: another protocol, or a body that ends with the connection.
    Opaque,
}

// === impl Exchange ===

impl Exchange {
    pub(super) const fn new() -> Self {
        Self::Begun(0)
    }

    pub(super) const fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    pub(super) fn traffic(&self) -> Traffic {
        match self {
            Self::Begun(0) => Traffic::Unused,
            Self::Begun(_) => Traffic::Busy,
            Self::Http2(streams) => streams.traffic(),
            Self::Opaque => Traffic::Opaque,
            Self::Open { request, response } => match (request.is_whole(), response.is_whole()) {
                (true, true) => Traffic::Free,
                (false, true) => Traffic::Unsent,
                (_, false) => Traffic::Busy,
            },
        }
    }

    /// These bytes went out.
    pub(super) fn wrote(&mut self, bytes: &[u8]) {
        match self {
            Self::Begun(matched) => {
                let matched = *matched;
                self.begin(matched, bytes);
            }
            Self::Open { .. } => self.wrote_http1(bytes),
            Self::Http2(streams) => streams.wrote(bytes),
            Self::Opaque => {}
        }
    }

    /// Tells the protocols apart by their first bytes, of which so many are HTTP/2's.
    fn begin(&mut self, matched: usize, bytes: &[u8]) {
        let (before, awaited) = PREFACE.split_at(matched);
        let pairs = awaited.iter().zip(bytes);
        let same = pairs.take_while(|(awaited, byte)| awaited == byte).count();
        let rest = bytes.split_at(same).1;
        if same == awaited.len() {
            *self = Self::Http2(Streams::default());
            self.wrote(rest);
        } else if rest.is_empty() {
            *self = Self::Begun(matched.saturating_add(same));
        } else {
            *self = Self::open();
            self.wrote_http1(before);
            self.wrote_http1(bytes);
        }
    }

    fn open() -> Self {
        Self::Open {
            request: Message::request(),
            response: Message::response(),
        }
    }

    fn wrote_http1(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.traffic() == Traffic::Free {
            *self = Self::open();
        }
        let Self::Open { request, response } = self else {
            return;
        };
        let beyond = request.read_on(bytes);
        if request.is_opaque() || !beyond.is_empty() {
            // Another protocol, or a second request before the first is answered.
            *self = Self::Opaque;
        } else if request.asks_for_the_head() {
            response.answer_with_the_head();
        }
    }

    /// These bytes came in.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let plain = match self {
            Self::Open { request, response } if !request.in_head() => {
                let beyond = response.read_on(bytes);
                beyond.is_empty() && !response.is_opaque()
            }
            Self::Http2(streams) => streams.read(bytes).is_some(),
            // Bytes that nobody has asked for.
            Self::Begun(_) | Self::Opaque | Self::Open { .. } => false,
        };
        if !plain {
            *self = Self::Opaque;
        }
    }
}

/// RFC 9113, section 3.4: what an HTTP/2 client writes first, and no HTTP/1.1 client ever does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[cfg(test)]
mod tests;
