use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

use crate::connection::{
    ConnectionPermit,
    closing::{Socket, close},
};

/// A socket that holds its connection permit until the server has closed it too.
///
/// Dropping it ends this side at once. The server's end is awaited in the background, for 30 s
/// at the most, and then the permit goes to the next. It holds through upgrades.
pub struct LimitedIo<T: Socket> {
    /// There until the drop.
    held: Option<(T, ConnectionPermit)>,
}

// === impl LimitedIo ===

impl<T: Socket> LimitedIo<T> {
    pub(super) fn new(socket: T, permit: ConnectionPermit) -> Self {
        Self {
            held: Some((socket, permit)),
        }
    }

    fn with<R>(
        mut self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut T>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        match &mut self.held {
            Some((socket, _)) => poll(Pin::new(socket)),
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
        self.with(|socket| socket.poll_read(cx, buf))
    }
}

impl<T: Socket> Write for LimitedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|socket| socket.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|socket| socket.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|(socket, _)| socket.is_write_vectored())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|socket| socket.poll_write_vectored(cx, bufs))
    }
}

impl<T: Socket + Connection> Connection for LimitedIo<T> {
    fn connected(&self) -> Connected {
        let held = self.held.as_ref();
        held.map_or_else(Connected::new, |(socket, _)| socket.connected())
    }
}

impl<T: Socket> Drop for LimitedIo<T> {
    fn drop(&mut self) {
        if let Some((socket, permit)) = self.held.take() {
            close(socket, permit);
        }
    }
}

impl<T: Socket + fmt::Debug> fmt::Debug for LimitedIo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.held.as_ref().map(|(socket, _)| socket);
        f.debug_struct("LimitedIo")
            .field("socket", &socket)
            .finish()
    }
}
