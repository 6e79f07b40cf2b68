use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

use crate::{
    connection::{
        ConnectionPermit,
        background::Begun,
        closing::{Socket, close},
        handle::Handle,
        permit::Place,
        usage::Rest,
    },
    request::held,
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
/// While a connect waits for a permit and this socket is idle, reading it gives the end of the
/// stream, and its owner closes it: see [`ConnectionLimit`](crate::ConnectionLimit). What is idle
/// is told by the responses, to which a pool hands on the extra that is in
/// [`connected`](Connection::connected).
#[derive(Debug)]
pub struct LimitedIo<T> {
    /// There until the drop.
    held: Option<Held<T>>,
    /// Closes it behind its owner's back: what is known of it where it is made.
    close: fn(T, ConnectionPermit),
}

#[derive(Debug)]
struct Held<T> {
    socket: T,
    place: Place,
    permit: ConnectionPermit,
    begun: Begun,
    /// Whom the limit would wake to read.
    reader: Option<Waker>,
}

// === impl LimitedIo ===

impl<T: Unpin> LimitedIo<T> {
    pub(super) fn new(socket: T, mut permit: ConnectionPermit, begun: Begun) -> Self
    where
        T: Socket,
    {
        // A pool that opens it in the background has no request for it.
        let place = permit.opened(if begun.is_orphaned() {
            Rest::Free
        } else {
            Rest::Doubtful
        });
        let held = Some(Held {
            socket,
            place,
            permit,
            begun,
            reader: None,
        });
        Self { held, close }
    }

    fn with<R>(
        mut self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut T>, &Place, &mut Option<Waker>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        match &mut self.held {
            Some(held) => poll(Pin::new(&mut held.socket), &held.place, &mut held.reader),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn write(
        self: Pin<&mut Self>,
        write: impl FnOnce(Pin<&mut T>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.with(|socket, place, _| {
            let written = write(socket);
            place.told(|usage| usage.wrote(written.is_pending()));
            written
        })
    }
}

impl<T: Read + Unpin> Read for LimitedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|socket, place, reader| {
            if place.is_to_leave(reader, cx.waker()) {
                // Nothing was read: the end, as if the server had closed an idle connection.
                return Poll::Ready(Ok(()));
            }
            socket.poll_read(cx, buf)
        })
    }
}

impl<T: Write + Unpin> Write for LimitedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(|socket| socket.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|socket, _, _| socket.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|socket, _, _| socket.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        self.held
            .as_ref()
            .is_some_and(|held| held.socket.is_write_vectored())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|socket| socket.poll_write_vectored(cx, bufs))
    }
}

impl<T: Connection> Connection for LimitedIo<T> {
    fn connected(&self) -> Connected {
        // A pool asks when all of the connecting is done, and then sends.
        held(false);
        self.held.as_ref().map_or_else(Connected::new, |held| {
            let orphaned = held.begun.is_orphaned();
            held.place.told(|usage| usage.made(orphaned));
            let handle = Handle::of(held.place.clone());
            held.socket.connected().extra(handle)
        })
    }
}

impl<T> Drop for LimitedIo<T> {
    fn drop(&mut self) {
        if let Some(Held { socket, permit, .. }) = self.held.take() {
            (self.close)(socket, permit);
        }
    }
}
