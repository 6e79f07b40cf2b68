//! Bytes of a connection, plain or in TLS, with the faults of the wire.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::socket::Socket;

/// Accepted connection. It stops counting when its closing begins, before the client can read its
/// end.
pub(super) struct Stream<S: Wire> {
    io: S,
    socket: Arc<Socket>,
}

/// TCP, or TLS over it.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn tcp(&self) -> &TcpStream;
}

// === impl Stream ===

impl<S: Wire> Stream<S> {
    pub(super) fn new(io: S, socket: Arc<Socket>) -> Self {
        Self { io, socket }
    }
}

impl<S: Wire> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: Wire> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.socket.is_garbled() {
            buf = GARBAGE.get(..buf.len()).unwrap_or(GARBAGE);
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.close();
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<S: Wire> Drop for Stream<S> {
    fn drop(&mut self) {
        self.socket.close();
        if self.socket.must_reset() {
            // It fails only if the client has already closed the connection.
            drop(self.io.tcp().set_zero_linger());
        }
    }
}

// === impl Wire ===

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

#[cfg(feature = "tls")]
impl Wire for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// TLS alert, an ASCII remark and a zero: no HTTP version begins like this.
const GARBAGE: &[u8] = b"\x15\x03\x01\x00\x02\x02\x28 this is not HTTP \x00\xff\xfe\r\n\r\n";

#[cfg(test)]
mod tests;
