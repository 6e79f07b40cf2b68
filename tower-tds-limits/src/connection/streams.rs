//! Which streams of an HTTP/2 connection are open, as far as its frames tell (RFC 9113, section
//! 5.1).

use std::collections::{HashMap, hash_map::Entry};

use crate::connection::{
    exchange::Traffic,
    frames::{Frame, Frames},
};

/// The streams that the client has begun on one connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    wrote: Frames,
    read: Frames,
    /// The open ones, each with the side that has ended, if one has.
    open: HashMap<u32, Option<Side>>,
    /// The last that was begun; numbers only grow (RFC 9113, section 5.1.1).
    last: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

// === impl Streams ===

impl Streams {
    pub(super) fn traffic(&self) -> Traffic {
        let between = self.wrote.is_between() && self.read.is_between();
        if !between || !self.open.is_empty() {
            Traffic::Busy
        } else if self.last > 0 {
            Traffic::Free
        } else if self.read.has_begun() {
            Traffic::Unused
        } else {
            // The service has yet to agree to speak HTTP/2.
            Traffic::Busy
        }
    }

    /// These bytes went out.
    pub(super) fn wrote(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.wrote.next(&mut bytes) {
            match frame {
                Frame::Fields { stream, last } => {
                    if stream > self.last {
                        self.last = stream;
                        self.open.insert(stream, None);
                    }
                    self.end(stream, Side::Request, last);
                }
                Frame::Data { stream, last } => self.end(stream, Side::Request, last),
                Frame::Reset { stream } => self.reset(stream),
                Frame::Push | Frame::Other => {}
            }
        }
    }

    /// These bytes came in. Gives `None` if nobody can tell any more what is open.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Option<()> {
        while let Some(frame) = self.read.next(&mut bytes) {
            match frame {
                Frame::Fields { stream, last } | Frame::Data { stream, last } => {
                    self.end(stream, Side::Response, last);
                }
                Frame::Reset { stream } => self.reset(stream),
                Frame::Push => return None,
                Frame::Other => {}
            }
        }
        Some(())
    }

    fn end(&mut self, stream: u32, side: Side, last: bool) {
        if last && let Entry::Occupied(mut open) = self.open.entry(stream) {
            match open.get() {
                None => drop(open.insert(Some(side))),
                Some(ended) if *ended != side => drop(open.remove()),
                Some(_) => {}
            }
        }
    }

    fn reset(&mut self, stream: u32) {
        self.open.remove(&stream);
    }
}

#[cfg(test)]
mod tests;
