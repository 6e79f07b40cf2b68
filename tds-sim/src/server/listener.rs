//! One listening socket and its connections.

use std::{net::SocketAddrV4, pin::pin, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
#[cfg(feature = "http2")]
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::{
    data,
    error::Error,
    oidc,
    server::{
        admin,
        stream::{Stream, Wire},
    },
    sim::{Answering, Sim},
    socket::Socket,
};

/// Bound socket that does not accept yet.
pub(super) struct Listener {
    socket: TcpListener,
    door: Door,
    sim: Sim,
    security: Security,
}

/// Whether a listener's connections are in TLS.
#[derive(Clone)]
pub(super) enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls(tokio_rustls::TlsAcceptor),
}

/// Accepted connection.
struct Guest {
    socket: Arc<Socket>,
    door: Door,
    sim: Sim,
    stopped: watch::Receiver<bool>,
}

/// Purpose of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Auth,
    Data,
    Admin,
}

// === impl Listener ===

impl Listener {
    /// Binds a port, and returns the URL as well.
    pub(super) async fn bind(
        address: SocketAddrV4,
        door: Door,
        sim: Sim,
        security: Security,
    ) -> Result<(Self, String), Error> {
        let bound = TcpListener::bind(address).await;
        let socket = bound.map_err(|error| Error::failed(door.taken(), error))?;
        let address = socket
            .local_addr()
            .map_err(|error| Error::failed("cannot start: no address", error))?;
        let scheme = match security {
            Security::Plain => "http",
            #[cfg(feature = "tls")]
            Security::Tls(_) => "https",
        };
        let listener = Self {
            socket,
            door,
            sim,
            security,
        };
        Ok((listener, format!("{scheme}://{address}")))
    }

    /// Accepts until it is stopped, then waits for its connections. Dropping the future closes
    /// them.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.socket.accept() => {
                    let Ok((stream, peer)) = accepted else {
                        // Most likely there is no file descriptor left until a connection ends.
                        tokio::time::sleep(RETRY).await;
                        continue;
                    };
                    let socket = Arc::new(match self.door {
                        Door::Data => Socket::counted(peer, &self.sim.state.intake),
                        Door::Auth | Door::Admin => Socket::uncounted(peer),
                    });
                    let guest = Guest {
                        socket,
                        door: self.door,
                        sim: self.sim.clone(),
                        stopped: stopped.clone(),
                    };
                    connections.spawn(guest.serve(stream, self.security.clone()));
                }
                Some(_) = connections.join_next() => {}
                _ = stopped.changed() => break,
            }
        }
        drop(self);
        while connections.join_next().await.is_some() {}
    }
}

// === impl Door ===

impl Door {
    /// Returns the error text for a port that is taken.
    fn taken(self) -> String {
        let door = format!("{self:?}").to_lowercase();
        format!("cannot start: the {door} port is not free; choose another, or 0 for a free one")
    }
}

// === impl Guest ===

impl Guest {
    /// Serves an accepted connection to its end.
    async fn serve(
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "a handshake waits"))]
        mut self,
        tcp: TcpStream,
        security: Security,
    ) {
        // Without this option, the pieces of a slow body wait for the client's acknowledgements.
        drop(tcp.set_nodelay(true));
        match security {
            Security::Plain => self.answer(tcp).await,
            #[cfg(feature = "tls")]
            Security::Tls(tls) => {
                let secured = tokio::select! {
                    secured = tls.accept(tcp).into_fallible() => secured,
                    _ = self.stopped.changed() => return,
                };
                match secured {
                    Ok(tls) => self.answer(tls).await,
                    // Dropping a `Stream` closes the connection, and stops counting it.
                    Err((_, tcp)) => drop(Stream::new(tcp, self.socket)),
                }
            }
        }
    }

    /// Answers the requests on a connection.
    async fn answer(self, io: impl Wire) {
        let (socket, mut stopped) = (self.socket, self.stopped);
        let stream = TokioIo::new(Stream::new(io, Arc::clone(&socket)));
        let answers = service_fn(|request: Request<Incoming>| -> Answering {
            let (state, socket) = (Arc::clone(&self.sim.state), Arc::clone(&socket));
            match self.door {
                Door::Auth => Box::pin(oidc::answer(state, Some(socket), request)),
                Door::Data => {
                    let peer = socket.peer();
                    Box::pin(data::answer(state, Some(socket), peer, request))
                }
                Door::Admin => Box::pin(admin::answer(self.sim.clone(), request)),
            }
        });
        #[cfg(not(feature = "http2"))]
        let builder = hyper::server::conn::http1::Builder::new();
        #[cfg(feature = "http2")]
        let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        let mut connection = pin!(builder.serve_connection(stream, answers));
        tokio::select! {
            // The ledger records how each call ends.
            _ = connection.as_mut() => return,
            () = socket.given_up() => return,
            _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            _ = connection => {}
            () = socket.given_up() => {}
        }
    }
}

/// How long a listener waits after a failed accept.
const RETRY: Duration = Duration::from_millis(10);
