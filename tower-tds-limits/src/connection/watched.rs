//! A socket that knows whether it carries a request.
//!
//! It speaks tokio's traits because their read buffer shows what was read; hyper's does not, but
//! through `unsafe`. `TokioIo` translates on both sides, and copies nothing.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    ConnectionPermit,
    closing::Socket,
    exchange::{Exchange, Traffic},
    exit::Exit,
    goodbye::Goodbye,
    sockets::Rest,
};

pub(super) struct Watched<T> {
    socket: TokioIo<T>,
    permit: ConnectionPermit,
    exit: Arc<Exit>,
    exchange: Exchange,
    /// What HTTP/2's reader is told when it is asked to leave.
    goodbye: Goodbye,
    /// Who opened it.
    origin: Origin,
    /// Whether the last read found nothing, so that the reader will be woken.
    reader_waits: bool,
    /// Whether the last write found no room.
    writer_waits: bool,
    /// Whether the limit was told that nobody misses this socket.
    rests: bool,
}

/// Who opened a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A request that is about to use it.
    Request,
    /// A pool, for whoever comes.
    Background,
}

// === impl Watched ===

impl<T: Socket> Watched<T> {
    pub(super) fn new(socket: T, mut permit: ConnectionPermit, origin: Origin) -> Self {
        let exit = Arc::new(Exit::default());
        permit.opened(&exit);
        Self {
            socket: TokioIo::new(socket),
            permit,
            exit,
            exchange: Exchange::new(),
            goodbye: Goodbye::default(),
            origin,
            reader_waits: false,
            writer_waits: false,
            rests: false,
        }
    }

    pub(super) fn get_ref(&self) -> &T {
        self.socket.inner()
    }

    pub(super) fn into_parts(self) -> (T, ConnectionPermit) {
        (self.socket.into_inner(), self.permit)
    }

    fn rest(&self) -> Option<Rest> {
        match (self.exchange.traffic(), self.origin) {
            _ if !self.reader_waits => None,
            (Traffic::Unsent, _) => Some(Rest::Doubtful),
            // A request is about to go out.
            _ if self.writer_waits => None,
            (Traffic::Free, _) | (Traffic::Unused, Origin::Background) => Some(Rest::Free),
            (Traffic::Unused, Origin::Request) => Some(Rest::Doubtful),
            (Traffic::Busy | Traffic::Opaque, _) => None,
        }
    }

    /// Tells the reader to leave if that was asked, as the server itself would. Says whether
    /// there is something to be read now.
    fn leave(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let asked = self.exit.is_asked();
        if self.exchange.is_http2() {
            // A request may be on its way to this socket, out of sight. It is not lost as it
            // would be by the end: whoever has read a goodbye sees to what it has begun.
            self.goodbye.say(asked, buf)
        } else {
            // The end, as if an idle connection had been closed: its owner closes it too.
            asked
        }
    }

    fn settle(&mut self) {
        if let Some(rest) = self.rest() {
            self.permit.rest(rest);
            self.rests = true;
        } else {
            self.work();
        }
    }

    fn work(&mut self) {
        if self.rests {
            self.rests = false;
            self.permit.work();
        }
    }

    fn after_write(&mut self, written: &Poll<io::Result<usize>>) {
        self.writer_waits = written.is_pending();
        // An answered upload that finds no room stands still; any other attempt is a request.
        if !self.writer_waits || self.exchange.traffic() != Traffic::Unsent {
            self.settle();
        }
    }
}

impl<T: Socket> AsyncRead for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.leave(buf) {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buf);
        this.reader_waits = read.is_pending();
        if read.is_pending() {
            this.exit.set_reader(cx.waker());
            if !this.rests {
                this.settle();
            }
            // Asked between the look above and now.
            if this.leave(buf) {
                return Poll::Ready(Ok(()));
            }
        }
        ready!(read)?;
        this.work();
        this.exchange
            .read(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<T: Socket> AsyncWrite for Watched<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &written {
            this.exchange.wrote(buf.get(..*n).unwrap_or(buf));
        }
        this.after_write(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(n)) = &written {
            let mut left = *n;
            for buf in bufs {
                let here = left.min(buf.len());
                this.exchange.wrote(buf.get(..here).unwrap_or(buf));
                left = left.saturating_sub(here);
            }
        }
        this.after_write(&written);
        written
    }
}
