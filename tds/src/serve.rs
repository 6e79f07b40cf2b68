//! The servers of this program: bind, serve, graceful end.

use std::{
    future, io,
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use crate::output::warn;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};
use tower_tds::Client;

use crate::{
    exit::{Exit, Failure},
    status::Board,
    stop,
};

/// Bound addresses. They are bound before any request to the service, so that a used address fails
/// at once.
pub(crate) struct Listeners {
    users: Listening,
    status: Option<Listening>,
}

/// A bound address.
///
/// Its connections speak HTTP/1.1. They end if no whole head arrives within [`HEAD`], or if the
/// peer reads nothing for `unread`, because its request holds a place of the service's limits.
struct Listening {
    listener: TcpListener,
    unread: Duration,
}

/// A connection with a timeout for writes without progress.
struct Connection {
    stream: TcpStream,
    unread: Duration,
    /// Set while a write waits for the peer.
    stuck: Option<Pin<Box<Sleep>>>,
}

// === impl Listeners ===

impl Listeners {
    pub(crate) fn bind(
        listen: SocketAddr,
        status: Option<SocketAddr>,
        unread: Duration,
    ) -> Result<Self, Failure> {
        Ok(Self {
            users: Listening::bind("--listen", listen, unread)?,
            status: match status {
                Some(status) => Some(Listening::bind("--status", status, unread)?),
                None => None,
            },
        })
    }

    /// Serves until the stop signal, and then completes open requests for `grace`.
    pub(crate) async fn serve(
        self,
        router: Router,
        board: Board,
        client: &Client,
        grace: Duration,
    ) -> Result<Exit, Failure> {
        // Aborted when this ends, so that the page also shows the shutdown.
        let mut pages = JoinSet::new();
        if let Some(status) = self.status {
            warn(&format!("status at http://{}", status.address()?));
            pages.spawn(status.serve(board.router(), future::pending(), Duration::ZERO));
        }
        warn(&format!("listening on http://{}", self.users.address()?));
        self.users.serve(router, stop::asked(), grace).await;
        client.shutdown(Duration::from_secs(1)).await;
        Ok(Exit::Whole)
    }
}

// === impl Listening ===

impl Listening {
    fn bind(option: &str, address: SocketAddr, unread: Duration) -> Result<Self, Failure> {
        let bound = || {
            let socket = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            #[cfg(unix)]
            socket.set_reuseaddr(true)?;
            // Connections inherit it from the listener.
            socket.set_send_buffer_size(UNSENT)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        let listener =
            bound().map_err(|error| Failure::usage(format!("{option} {address}: {error}")))?;
        Ok(Self { listener, unread })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let address = self.listener.local_addr();
        address.map_err(|error| Failure::new(Exit::SomeFailed, error.to_string()))
    }

    async fn accept(&self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                // The peer has disconnected.
                Err(error) if is_of_the_peer(&error) => {}
                // The limit of open files is reached. Other connections will close.
                Err(error) => {
                    warn(&format!("nobody new is let in for a second: {error}"));
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Serves until `stop` is ready, and then for `grace` at most.
    async fn serve(self, router: Router, stop: impl Future<Output = ()>, grace: Duration) {
        let mut stop = pin!(stop);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let service = TowerToHyperService::new(router);
        let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
        loop {
            let stream = tokio::select! {
                stream = self.accept() => stream,
                // Removes ended connections.
                Some(_) = connections.join_next() => continue,
                () = &mut stop => break,
            };
            let connection = Connection {
                stream,
                unread: self.unread,
                stuck: None,
            };
            let served = http.serve_connection(TokioIo::new(connection), service.clone());
            connections.spawn(graceful.watch(served));
        }
        drop(self.listener);
        // The set drops the connections that take longer.
        let _late = timeout(grace, graceful.shutdown()).await;
    }
}

// === impl Connection ===

impl Connection {
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = write(Pin::new(&mut self.stream), cx);
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let unread = self.unread;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(unread)));
        let over = stuck.as_mut().poll(cx);
        over.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write(cx, data))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write_vectored(cx, data))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// The pause before the next accept.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest wait for a request head, from the start of the connection or the end of the previous
/// response.
const HEAD: Duration = Duration::from_secs(15);

/// The size of the send buffer. The system reports room when a third of it is free. With a larger
/// buffer a slow peer would look like one that does not read: at this size 1.5 kB/s are noticed
/// within a minute.
const UNSENT: u32 = 256 * 1024;

/// The most connections that wait for an accept.
const BACKLOG: u32 = 1024;
