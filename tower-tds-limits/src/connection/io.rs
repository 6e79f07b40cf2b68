use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};

use crate::connection::{
    ConnectionPermit,
    closing::{Socket, close},
    watched::{Origin, Watched},
};

/// A socket that holds its connection permit until the server has closed it too.
///
/// Dropping it ends this side at once. The server's end is awaited in the background, for 30 s
/// at the most, and then the permit goes to the next. It holds through upgrades.
///
/// A server that sends another 256 KiB does not end because this side has: its socket is reset,
/// which ends a download that nobody reads, and the permit goes to the next a second later.
///
/// # Reclaim
/// While a connect waits for a permit and this socket carries nothing, reading it gives what a
/// server says that closes an idle connection, the end of the stream or HTTP/2's GOAWAY: see
/// [`ConnectionLimit`](crate::ConnectionLimit).
pub struct LimitedIo<T: Socket> {
    /// There until the drop.
    held: Option<TokioIo<Watched<T>>>,
}

// === impl LimitedIo ===

impl<T: Socket> LimitedIo<T> {
    pub(super) fn new(socket: T, permit: ConnectionPermit, origin: Origin) -> Self {
        Self {
            held: Some(TokioIo::new(Watched::new(socket, permit, origin))),
        }
    }

    fn socket(&self) -> Option<&T> {
        self.held.as_ref().map(|held| held.inner().get_ref())
    }

    fn with<R>(
        mut self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut TokioIo<Watched<T>>>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        match &mut self.held {
            Some(held) => poll(Pin::new(held)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl<T: Socket> Read for LimitedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|held| held.poll_read(cx, buf))
    }
}

impl<T: Socket> Write for LimitedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|held| held.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|held| held.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|held| held.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        self.held.as_ref().is_some_and(Write::is_write_vectored)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|held| held.poll_write_vectored(cx, bufs))
    }
}

impl<T: Socket + Connection> Connection for LimitedIo<T> {
    fn connected(&self) -> Connected {
        self.socket().map_or_else(Connected::new, T::connected)
    }
}

impl<T: Socket> Drop for LimitedIo<T> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let (socket, permit) = held.into_inner().into_parts();
            close(socket, permit);
        }
    }
}

impl<T: Socket + fmt::Debug> fmt::Debug for LimitedIo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedIo")
            .field("socket", &self.socket())
            .finish()
    }
}
