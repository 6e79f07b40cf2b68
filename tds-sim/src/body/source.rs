//! Bytes of a body as they go to the wire: made, encoded, and cut into pieces.

use std::io::{self, Read, Write as _};

use bytes::{Buf as _, Bytes};
use http::{
    HeaderMap,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING},
};

/// Bytes in memory, or numbered lines that are made when they are read: a large body costs no
/// memory.
#[derive(Debug)]
pub(crate) struct Source {
    block: Bytes,
    /// Number of bytes that are not made yet, after `block`.
    left: u64,
    line: u64,
}

/// Coding of the contract's request header `Content-Encoding: br,gzip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Gzip,
}

// === impl Source ===

impl Source {
    /// Creates a source of these bytes.
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self {
            block: bytes.into(),
            left: 0,
            line: 0,
        }
    }

    /// Creates a source of lines, `length` bytes in all. The last line may be incomplete.
    pub(crate) fn lines(length: u64) -> Self {
        Self {
            block: Bytes::new(),
            left: length,
            line: 0,
        }
    }

    /// Returns the number of bytes left.
    pub(crate) fn length(&self) -> u64 {
        self.left.saturating_add(self.block.len() as u64)
    }

    /// Returns all bytes, if all are in memory.
    pub(super) fn at_hand(&self) -> Option<Bytes> {
        (self.left == 0).then(|| self.block.clone())
    }

    /// Returns `length` of the bytes of a new source, from `start`. Both are within it.
    pub(crate) fn slice(&self, start: u64, length: u64) -> Self {
        if let Some(bytes) = self.at_hand() {
            let at = |at| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            return Self::bytes(bytes.slice(at(start)..at(start.saturating_add(length))));
        }
        let within = start % LINE as u64;
        let mut source = Self::lines(within.saturating_add(length));
        source.line = start / LINE as u64;
        source.refill();
        let skipped = usize::try_from(within).unwrap_or(LINE);
        source.block.advance(skipped.min(source.block.len()));
        source
    }

    fn refill(&mut self) {
        if !self.block.is_empty() || self.left == 0 {
            return;
        }
        let mut block = Vec::with_capacity(BLOCK);
        while block.len() < BLOCK {
            // Writing to memory does not fail.
            drop(writeln!(block, "{:012},on time,2026-11-21", self.line));
            self.line += 1;
        }
        block.truncate(usize::try_from(self.left).unwrap_or(BLOCK).min(BLOCK));
        self.left -= block.len() as u64;
        self.block = block.into();
    }
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.refill();
        let most = self.block.len().min(buf.len());
        self.block
            .copy_to_slice(buf.get_mut(..most).unwrap_or_default());
        Ok(most)
    }
}

// === impl Coding ===

impl Coding {
    /// Returns the coding that a request accepts, in the contract's own header or in the standard
    /// one.
    ///
    /// Brotli is preferred, whatever the order or the weights, except with a weight of zero.
    pub(crate) fn accepted_by(headers: &HeaderMap) -> Option<Self> {
        let accepts = |coding: &str| {
            [CONTENT_ENCODING, ACCEPT_ENCODING]
                .iter()
                .flat_map(|name| headers.get_all(name))
                .filter_map(|value| value.to_str().ok())
                .flat_map(|value| value.split(','))
                .any(|item| names(item, coding))
        };
        if !cfg!(feature = "coding") {
            None
        } else if accepts("br") {
            Some(Self::Brotli)
        } else {
            accepts("gzip").then_some(Self::Gzip)
        }
    }

    /// Returns the name of the coding in `Content-Encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Encodes `source` as it is read, in bounded memory.
    ///
    /// Uses the fastest levels, because the transfer is simulated and not the gateway's work.
    #[cfg(feature = "coding")]
    pub(super) fn encode(self, source: Source) -> Box<dyn Read + Send> {
        match self {
            Self::Brotli => Box::new(brotli::CompressorReader::new(source, BLOCK, 0, 20)),
            Self::Gzip => Box::new(flate2::read::GzEncoder::new(
                source,
                flate2::Compression::fast(),
            )),
        }
    }

    #[cfg(not(feature = "coding"))]
    pub(super) fn encode(self, source: Source) -> Box<dyn Read + Send> {
        Box::new(source)
    }
}

/// Whether `item` of a list, such as `gzip;q=0.5`, accepts `coding`.
fn names(item: &str, coding: &str) -> bool {
    let (name, weight) = item.split_once(';').unwrap_or((item, ""));
    let refused = weight
        .trim()
        .strip_prefix("q=")
        .and_then(|weight| weight.trim().parse::<f32>().ok())
        .is_some_and(|weight| weight <= 0.0);
    name.trim().eq_ignore_ascii_case(coding) && !refused
}

/// Reads the next piece, of at most `most` bytes, or an empty one at the end.
pub(super) fn piece(source: &mut dyn Read, most: usize) -> io::Result<Bytes> {
    let mut piece = vec![0; most.clamp(1, PIECE)];
    let filled = source.read(&mut piece)?;
    piece.truncate(filled);
    Ok(piece.into())
}

/// Size of a piece.
pub(super) const PIECE: usize = 16 * 1024;

/// Length of a line: its number, two fields and a line feed.
const LINE: usize = 32;

/// Number of bytes that are made at a time.
const BLOCK: usize = 512 * LINE;

#[cfg(test)]
mod tests;
