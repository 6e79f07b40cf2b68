//! A connection's bytes, plain or in TLS, with the faults that only a wire can show.

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
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::socket::Socket;

/// An accepted connection. It stops counting when its closing begins, before the client can know.
#[derive(Debug)]
pub(super) struct Stream {
    layer: Layer,
}

#[derive(Debug)]
enum Layer {
    Plain(Wire),
    Tls(Box<TlsStream<Wire>>),
}

/// The TCP connection beneath TLS.
#[derive(Debug)]
struct Wire {
    tcp: TcpStream,
    socket: Arc<Socket>,
}

// === impl Stream ===

impl Stream {
    pub(super) fn plain(tcp: TcpStream, socket: Arc<Socket>) -> Self {
        Self {
            layer: Layer::Plain(Wire { tcp, socket }),
        }
    }

    /// The same connection after the server's side of a TLS handshake.
    pub(super) async fn secured(self, tls: &TlsAcceptor) -> io::Result<Self> {
        let layer = match self.layer {
            Layer::Plain(wire) => Layer::Tls(Box::new(tls.accept(wire).await?)),
            secured @ Layer::Tls(_) => secured,
        };
        Ok(Self { layer })
    }

    fn socket(&self) -> &Socket {
        match &self.layer {
            Layer::Plain(wire) => &wire.socket,
            Layer::Tls(stream) => &stream.get_ref().0.socket,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().layer {
            Layer::Plain(wire) => Pin::new(wire).poll_read(cx, buf),
            Layer::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let garbage = self.socket().is_garbled();
        let buf = if garbage {
            GARBAGE.get(..buf.len()).unwrap_or(GARBAGE)
        } else {
            buf
        };
        match &mut self.get_mut().layer {
            Layer::Plain(wire) => Pin::new(wire).poll_write(cx, buf),
            Layer::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().layer {
            Layer::Plain(wire) => Pin::new(wire).poll_flush(cx),
            Layer::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().close();
        match &mut self.get_mut().layer {
            Layer::Plain(wire) => Pin::new(wire).poll_shutdown(cx),
            Layer::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

// === impl Wire ===

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.socket.close();
        if self.socket.must_reset() {
            // If the client has gone already, there is nobody left to be reset.
            drop(self.tcp.set_zero_linger());
        }
    }
}

/// A TLS alert, an ASCII remark and a zero: no HTTP version begins like this.
const GARBAGE: &[u8] = b"\x15\x03\x01\x00\x02\x02\x28 this is not HTTP \x00\xff\xfe\r\n\r\n";

#[cfg(test)]
mod tests;
