//! A server of this program: bound, announced, and ended with what it has begun.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, serve::Listener};
use tds_examples::warn;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::oneshot,
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
    users: Impatient,
    status: Option<TcpListener>,
}

/// A listener whose connections break off where the peer reads nothing for so long: what is under way for it
/// holds a place of the service's limits.
struct Impatient {
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
    pub(crate) async fn bind(
        listen: SocketAddr,
        status: Option<SocketAddr>,
        unread: Duration,
    ) -> Result<Self, Failure> {
        Ok(Self {
            users: Impatient {
                listener: bind("--listen", listen).await?,
                unread,
            },
            status: match status {
                Some(status) => Some(bind("--status", status).await?),
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
        if let Some(listener) = self.status {
            warn(&format!("tds: status at http://{}", address(&listener)?));
            pages.spawn(axum::serve(listener, board.router()).into_future());
        }
        warn(&format!(
            "tds: listening on http://{}",
            address(&self.users.listener)?
        ));
        let (stopping, stopped) = oneshot::channel::<()>();
        let serving = axum::serve(self.users, router).with_graceful_shutdown(async move {
            stop::asked().await;
            // Its end is the word.
            drop(stopping);
        });
        let mut serving = tokio::spawn(serving.into_future());
        let ended = tokio::select! {
            ended = &mut serving => ended,
            _ = stopped => match timeout(grace, &mut serving).await {
                Ok(ended) => ended,
                Err(_) => {
                    serving.abort();
                    Ok(Ok(()))
                }
            },
        };
        client.shutdown(Duration::from_secs(1)).await;
        match ended {
            Ok(Ok(())) => Ok(Exit::Whole),
            Ok(Err(error)) => Err(Failure::new(Exit::SomeFailed, error.to_string())),
            Err(panic) => Err(Failure::new(Exit::SomeFailed, panic.to_string())),
        }
    }
}

// === impl Impatient ===

impl Listener for Impatient {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            unread: self.unread,
            stuck: None,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
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

async fn bind(option: &str, listen: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(listen).await;
    listener.map_err(|error| Failure::usage(format!("{option} {listen}: {error}")))
}

fn address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    let address = listener.local_addr();
    address.map_err(|error| Failure::new(Exit::SomeFailed, error.to_string()))
}
