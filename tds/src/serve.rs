//! A server of this program: bound, announced, and ended with what it has begun.

use std::{
    future, io,
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use crate::say::warn;
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

/// What is bound before anything is asked of the service: an address that is taken is told at once.
pub(crate) struct Listeners {
    users: Listening,
    status: Option<Listening>,
}

/// A bound address. Its connections speak HTTP/1.1, and break off where no whole head comes for [`HEAD`], or where the
/// peer reads nothing for so long: what is under way for it holds a place of the service's limits.
struct Listening {
    listener: TcpListener,
    unread: Duration,
}

/// A connection that is written to as long as that gets on.
struct Connection {
    stream: TcpStream,
    unread: Duration,
    /// There while a write waits for the peer.
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

    /// Serves until somebody wants the program to end, and lets what has begun come to its end for `grace`.
    pub(crate) async fn serve(
        self,
        router: Router,
        board: Board,
        client: &Client,
        grace: Duration,
    ) -> Result<Exit, Failure> {
        // Aborted when this ends, so that it shows the end, too.
        let mut pages = JoinSet::new();
        if let Some(status) = self.status {
            warn(&format!("tds: status at http://{}", status.address()?));
            pages.spawn(status.serve(board.router(), future::pending(), Duration::ZERO));
        }
        warn(&format!(
            "tds: listening on http://{}",
            self.users.address()?
        ));
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
            // Connections have it from here.
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
                // Its peer has gone again.
                Err(error) if is_of_the_peer(&error) => {}
                // As many files are open as may be. Others end theirs meanwhile.
                Err(error) => {
                    warn(&format!("tds: nobody new is let in for a second: {error}"));
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Until `stop` is ready, and then for `grace` at the most.
    async fn serve(self, router: Router, stop: impl Future<Output = ()>, grace: Duration) {
        let mut stop = pin!(stop);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let service = TowerToHyperService::new(router);
        let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
        loop {
            let stream = tokio::select! {
                stream = self.accept() => stream,
                // Those that have ended are forgotten.
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
        // What takes longer is dropped with the set.
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

/// Until somebody is let in again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a connection may take for a head, from its beginning or from the end of the answer before.
const HEAD: Duration = Duration::from_secs(15);

/// Bytes that the system keeps of what a peer has not read yet. It says that there is room when a third of them is gone,
/// and more would let a peer that reads all the time look like one that does not: 1.5 kB/s are enough to be seen in a minute.
const UNSENT: u32 = 256 * 1024;

/// As the standard library has it for others.
const BACKLOG: u32 = 1024;
