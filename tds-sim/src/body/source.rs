//! Sources of a body's bytes, before any encoding.

use std::{
    io::{self, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

/// Bytes at hand, or numbered lines made as they are read: a big body costs no memory.
#[derive(Debug)]
pub(crate) struct Source {
    block: Bytes,
    /// How many bytes are still to be made beyond `block`.
    left: u64,
    line: u64,
}

// === impl Source ===

impl Source {
    /// These bytes.
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self {
            block: bytes,
            left: 0,
            line: 0,
        }
    }

    /// `length` bytes of lines, the last one cut off where they end.
    pub(crate) fn lines(length: u64) -> Self {
        Self {
            block: Bytes::new(),
            left: length,
            line: 0,
        }
    }

    fn refill(&mut self) {
        if !self.block.is_empty() || self.left == 0 {
            return;
        }
        let mut block = Vec::with_capacity(BLOCK);
        while block.len() < BLOCK {
            // Writing to memory does not fail.
            drop(writeln!(block, "{:012},on time,2026-11-21", self.line));
            self.line = self.line.saturating_add(1);
        }
        block.truncate(usize::try_from(self.left).unwrap_or(usize::MAX).min(BLOCK));
        let made = u64::try_from(block.len()).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(made);
        self.block = block.into();
    }
}

impl AsyncBufRead for Source {
    fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        this.refill();
        Poll::Ready(Ok(&this.block))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        self.block.advance(amount);
    }
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.refill();
        let most = self.block.len().min(buf.remaining());
        let part = self.block.split_to(most);
        buf.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

/// The length of a line: its number, two fields and a line feed.
const LINE: usize = 32;

/// How many bytes are made at a time.
const BLOCK: usize = 512 * LINE;
