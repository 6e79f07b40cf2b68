//! The bytes of a body as they go to the wire: encoded, and cut into pieces.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use crate::body::Source;

/// Cuts what it reads into pieces of at most [`PIECE`] bytes.
pub(crate) struct Pieces {
    reader: Pin<Box<dyn AsyncRead + Send>>,
}

// === impl Pieces ===

impl Pieces {
    /// The pieces of whatever `encoder` makes of a [`Source`].
    pub(crate) fn of(encoder: impl AsyncRead + Send + 'static) -> Self {
        Self {
            reader: Box::pin(encoder),
        }
    }

    /// Numbered lines that never end.
    pub(crate) fn endless() -> Self {
        Self::of(Source::lines(u64::MAX))
    }

    pub(crate) fn poll_next(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let mut piece = vec![0; most.clamp(1, PIECE)];
        let mut buf = ReadBuf::new(&mut piece);
        let read = ready!(self.reader.as_mut().poll_read(cx, &mut buf));
        let filled = buf.filled().len();
        piece.truncate(filled);
        Poll::Ready(match read {
            Ok(()) if filled == 0 => None,
            Ok(()) => Some(Ok(piece.into())),
            Err(error) => Some(Err(error)),
        })
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").finish_non_exhaustive()
    }
}

/// The size of a piece.
pub(super) const PIECE: usize = 16 * 1024;
