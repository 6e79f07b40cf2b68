//! What an HTTP/2 server says that is about to close, said in its place.
//!
//! The end of the stream alone would lose a request that its client has taken on and not written
//! yet. A client that has read a GOAWAY begins nothing more, sees to what it has begun, and
//! closes.

use tokio::io::ReadBuf;

/// A GOAWAY, and how much of it has been read.
#[derive(Debug, Default)]
pub(super) enum Goodbye {
    // ## Unsaid => Left
    #[default]
    Unsaid,
    /// So much is still to be read. Once begun it is said to its end, whatever is asked.
    Left(&'static [u8]),
}

// === impl Goodbye ===

impl Goodbye {
    /// Says as much as `buf` takes, once it was asked for. Says whether that was something.
    pub(super) fn say(&mut self, asked: bool, buf: &mut ReadBuf<'_>) -> bool {
        let left = match self {
            Self::Unsaid if asked => GOAWAY,
            Self::Unsaid | Self::Left([]) => return false,
            Self::Left(left) => left,
        };
        let (now, later) = left.split_at(left.len().min(buf.remaining()));
        buf.put_slice(now);
        *self = Self::Left(later);
        true
    }
}

/// RFC 9113, section 6.8: the largest number as the last stream, and `NO_ERROR`, from a server
/// that is going to close and does not know yet which streams are on their way to it.
const GOAWAY: &[u8] = &[
    0, 0, 8, 7, 0, 0, 0, 0, 0, // eight bytes of the type GOAWAY about the connection
    0x7f, 0xff, 0xff, 0xff, // the last stream
    0, 0, 0, 0, // no error
];

#[cfg(test)]
mod tests;
