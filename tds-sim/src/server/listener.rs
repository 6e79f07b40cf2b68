//! One listening socket and its connections.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    error::Error,
    server::{service::Door, stream::Stream},
    sim::Sim,
    socket::Socket,
};

/// A bound socket that does not accept yet.
pub(super) struct Listener {
    socket: TcpListener,
    door: Door,
    sim: Sim,
    tls: Option<TlsAcceptor>,
    url: String,
}

// === impl Listener ===

impl Listener {
    pub(super) async fn bind(
        port: u16,
        door: Door,
        sim: Sim,
        tls: Option<TlsAcceptor>,
    ) -> Result<Self, Error> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let socket = bound.map_err(|error| Error::start(door.taken(), error))?;
        let address = socket
            .local_addr()
            .map_err(|error| Error::start("no address", error))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        Ok(Self {
            socket,
            door,
            sim,
            tls,
            url: format!("{scheme}://{address}"),
        })
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// Accepts until it is stopped, then waits for its connections. Dropped, it closes them.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.socket.accept() => {
                    let Ok((stream, peer)) = accepted else {
                        // Out of file descriptors, most likely, until a connection ends.
                        tokio::time::sleep(RETRY).await;
                        continue;
                    };
                    let socket = Arc::new(match self.door {
                        Door::Data => self.sim.socket(peer),
                        Door::Auth | Door::Admin => Socket::uncounted(peer),
                    });
                    let (door, sim, tls) = (self.door, self.sim.clone(), self.tls.clone());
                    connections.spawn(serve(stream, socket, door, sim, tls, stopped.clone()));
                }
                Some(_) = connections.join_next() => {}
                _ = stopped.changed() => break,
            }
        }
        drop(self);
        while connections.join_next().await.is_some() {}
    }
}

/// Serves one connection to its end.
async fn serve(
    stream: TcpStream,
    socket: Arc<Socket>,
    door: Door,
    sim: Sim,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    // Without it the pieces of a slow body wait for the client's acknowledgements.
    drop(stream.set_nodelay(true));
    let plain = Stream::plain(stream, Arc::clone(&socket));
    let stream = match tls {
        None => plain,
        Some(tls) => {
            tokio::select! {
                secured = plain.secured(&tls) => match secured {
                    Ok(secured) => secured,
                    Err(_) => return,
                },
                _ = stopped.changed() => return,
            }
        }
    };
    let answers = hyper::service::service_fn({
        let socket = Arc::clone(&socket);
        move |request| door.answer(&sim, &socket, request)
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), answers));
    tokio::select! {
        // How a connection ends is for the ledger to say.
        _ = connection.as_mut() => return,
        () = socket.given_up() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = socket.given_up() => {}
    }
}

/// How long a listener waits after a failed accept.
const RETRY: Duration = Duration::from_millis(10);
