use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use pin_project_lite::pin_project;

use crate::connection::ConnectionPermit;

pin_project! {
    /// A socket that holds its connection permit, also through an upgrade.
    pub struct LimitedIo<T> {
        // Declared first, so that the socket is closed before its permit goes to the next.
        #[pin]
        inner: T,
        // Kept for its drop.
        permit: Option<ConnectionPermit>,
    }
}

// === impl LimitedIo ===

impl<T> LimitedIo<T> {
    pub(super) fn new(inner: T, permit: Option<ConnectionPermit>) -> Self {
        Self { inner, permit }
    }

    /// The inner socket.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }
}

impl<T: Read> Read for LimitedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.project().inner.poll_read(cx, buf)
    }
}

impl<T: Write> Write for LimitedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write_vectored(cx, bufs)
    }
}

impl<T: Connection> Connection for LimitedIo<T> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

impl<T: fmt::Debug> fmt::Debug for LimitedIo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedIo")
            .field("inner", &self.inner)
            .field("holds_permit", &self.permit.is_some())
            .finish()
    }
}
