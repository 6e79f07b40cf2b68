//! What a socket carries, as far as its bytes tell.
//!
//! hyper keeps to itself whether a connection is idle: from outside, a body that is slow to come
//! looks the same. So the socket reads along.

use crate::connection::message::Message;

/// The request and the response under way on one HTTP/1.1 connection.
#[derive(Debug)]
pub(super) enum Exchange {
    None,
    Open { request: Message, response: Message },
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
        Self::None
    }

    pub(super) fn traffic(&self) -> Traffic {
        match self {
            Self::None => Traffic::Unused,
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
        if bytes.is_empty() {
            return;
        }
        if matches!(self.traffic(), Traffic::Unused | Traffic::Free) {
            *self = Self::Open {
                request: Message::request(),
                response: Message::response(),
            };
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
            // Bytes that nobody has asked for.
            Self::None | Self::Opaque | Self::Open { .. } => false,
        };
        if !plain {
            *self = Self::Opaque;
        }
    }
}

#[cfg(test)]
mod tests;
