//! Socket that holds its permit, and how it closes.
//!
//! A server counts a connection until it has noticed the end. If the permit went back as soon as
//! this side closes, the next connection could open earlier than that, and would be one too many.

use std::{
    future::poll_fn,
    io::{self, ErrorKind, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use crate::{
    clock,
    sockets::{ConnectionPermit, LINGERS},
};

/// A socket that holds its connection permit until the server has closed it.
///
/// It keeps the permit through a protocol upgrade.
///
/// | after this side's close | the permit returns |
/// |---|---|
/// | the server closes or resets within a third of a second, or had before | after a second, because the server counts until it has our FIN |
/// | it closes or resets later | after twice that time and a second at most, because a FIN that was lost is sent again by then |
/// | a read or write has failed otherwise, as in a network outage | after 30 s, because an end that the kernel then reports does not come from the server |
/// | the server sends 256 KiB more | a second after the socket is dropped |
/// | none of these | after 30 s |
///
/// So if your server closes each connection, each costs a permit for a second: with
/// `connections(4)`, three calls a second. After an outage, you have to do without the sockets that
/// failed in it for up to 30 s.
///
/// # Cancel safety
/// Dropping it ends this side at once, and a task does the rest, within half a minute. Outside a
/// runtime the socket is just dropped, and its permit is kept for a second.
#[derive(Debug)]
pub struct LimitedIo<T> {
    /// Socket and permit, present until the drop.
    open: Option<OpenSocket<T>>,
    /// Closes the socket. A function pointer, so that `Drop` needs no bounds on `T`.
    close: fn(OpenSocket<T>),
}

#[derive(Debug)]
struct OpenSocket<T> {
    socket: T,
    permit: ConnectionPermit,
    /// Whether this side's kernel has ended the connection, so that the server may still count it.
    is_cut: bool,
}

// === impl LimitedIo ===

impl<T> LimitedIo<T> {
    pub(super) fn new(socket: T, permit: ConnectionPermit) -> Self
    where
        T: Read + Write + Send + Unpin + 'static,
    {
        Self {
            open: Some(OpenSocket {
                socket,
                permit,
                is_cut: false,
            }),
            close,
        }
    }

    fn open(&mut self) -> io::Result<&mut OpenSocket<T>> {
        let open = self.open.as_mut();
        open.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    fn socket(&self) -> Option<&T> {
        self.open.as_ref().map(|open| &open.socket)
    }
}

impl<T: Read + Unpin> Read for LimitedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let open = self.open()?;
        let read = open.poll(|socket| socket.poll_read(cx, buf));
        if read.is_pending() {
            return open.permit.poll_over(cx).map(Err);
        }
        read
    }
}

impl<T: Write + Unpin> Write for LimitedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.open()?.write(|socket| socket.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open()?.poll(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The error is not recorded, because it shows nothing about the server: after a reset it is
        // `NotConnected`.
        Pin::new(&mut self.open()?.socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket().is_some_and(Write::is_write_vectored)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open()?
            .write(|socket| socket.poll_write_vectored(cx, bufs))
    }
}

impl<T: Connection> Connection for LimitedIo<T> {
    fn connected(&self) -> Connected {
        self.socket()
            .map_or_else(Connected::new, Connection::connected)
    }
}

impl<T> Drop for LimitedIo<T> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            (self.close)(open);
        }
    }
}

// === impl OpenSocket ===

impl<T: Unpin> OpenSocket<T> {
    /// Polls the socket, and records whether its connection was cut. An error after another one shows
    /// nothing about the server.
    fn poll<R>(
        &mut self,
        poll: impl FnOnce(Pin<&mut T>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let done = poll(Pin::new(&mut self.socket));
        if let Poll::Ready(Err(error)) = &done {
            // A broken pipe comes after this side's own end, or after a reset.
            let ends = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
            self.is_cut |= !ends.contains(&error.kind());
        }
        done
    }

    /// Writes, unless the socket's share has ended.
    fn write(
        &mut self,
        poll: impl FnOnce(Pin<&mut T>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.permit.check()?;
        self.poll(poll)
    }
}

impl<T: Read + Write + Unpin> OpenSocket<T> {
    async fn close(mut self) {
        let latest = clock::now() + LONGEST_CLOSE;
        let over = timeout_at(latest, self.over()).await;
        drop(self.socket);
        let over = over.ok().filter(|_| !self.is_cut);
        self.permit
            .give_back(over.map_or(latest, |at| at.min(latest)));
    }

    /// Ends this side, then reads until the server has ended its own or the connection is broken.
    /// Returns when the server surely has this side's end or reset.
    ///
    /// The server's end does not show that: both may have been lost in a cut, and its own sent again
    /// first. A kernel waits for less than a second, and then twice as long each time.
    async fn over(&mut self) -> Instant {
        let ended = clock::now();
        // The error can be ignored: either this side had ended before, or the read below returns it
        // again.
        let socket = &mut self.socket;
        let _ended: io::Result<()> = poll_fn(|cx| Pin::new(&mut *socket).poll_shutdown(cx)).await;
        let mut left = ON_ITS_WAY;
        loop {
            match poll_fn(|cx| self.poll_read(cx)).await {
                0 => {
                    let took = clock::now() - ended;
                    return ended + LINGERS.max(2 * took + took.min(LINGERS));
                }
                // A server that still sends receives a reset (RFC 1122, section 4.2.2.13).
                came if came > left => return clock::now() + LINGERS,
                came => left -= came,
            }
        }
    }

    /// Reads, and returns the number of bytes, which is zero after the end and after an error.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let mut scratch = [0; 4096];
        let mut read = ReadBuf::new(&mut scratch);
        let end = ready!(self.poll(|socket| socket.poll_read(cx, read.unfilled())));
        Poll::Ready(end.map_or(0, |()| read.filled().len()))
    }
}

/// Closes a socket in a task, if there is a runtime.
fn close<T>(open: OpenSocket<T>)
where
    T: Read + Write + Send + Unpin + 'static,
{
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(open.close()));
    }
}

/// Longest wait for the server's end. Simulated before this crate was written: with 30 s, 0 of
/// 100,000 connects are refused, and with 5 s up to 22.
const LONGEST_CLOSE: Duration = Duration::from_secs(30);

/// Bytes that may still be on their way, a tenth of a second's worth at 20 Mbit/s. A server that
/// sends more is continuing a download.
const ON_ITS_WAY: usize = 256 * 1024;

#[cfg(test)]
mod tests;
