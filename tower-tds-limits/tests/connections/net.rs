//! A network of servers in this process, for tests under a paused clock.

use std::{
    future::{Future, pending},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo},
};
use tokio::{io::DuplexStream, task::JoinSet};
use tower::{Layer, Service};
use tower_tds_limits::{ConnectionLimit, ConnectionLimitLayer, Limiter};

use crate::connections::{get, server::Server};

/// Connects to the server that the URI names. A connect to [`SILENT`] never ends.
#[derive(Clone)]
pub(crate) struct Net {
    servers: Arc<Vec<Server>>,
}

/// A pipe to a server.
pub(crate) struct Pipe {
    io: TokioIo<DuplexStream>,
    pub(crate) connected: fn() -> Connected,
}

// === impl Net ===

impl Net {
    pub(crate) fn of<const N: usize>(names: [&str; N]) -> Self {
        Self {
            servers: Arc::new(names.into_iter().map(Server::in_process).collect()),
        }
    }

    pub(crate) fn server(&self, name: &str) -> &Server {
        let named = |server: &&Server| server.uri().host() == Some(name);
        self.servers.iter().find(named).expect("a known name")
    }
}

impl Service<Uri> for Net {
    type Response = Pipe;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Pipe>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let host = target.host().expect("a host");
        if host == SILENT {
            return Box::pin(pending());
        }
        let server = self.server(host).clone();
        Box::pin(async move { Ok(Pipe::new(server.connect())) })
    }
}

// === impl Pipe ===

impl Pipe {
    pub(crate) fn new(socket: DuplexStream) -> Self {
        Self {
            io: TokioIo::new(socket),
            connected: Connected::new,
        }
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        (self.connected)()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

pub(crate) type NetClient = Client<ConnectionLimit<Net>, Empty<Bytes>>;

pub(crate) fn net_client(net: &Net, limiter: &Limiter) -> NetClient {
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(net.clone());
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Leaves this many idle sockets behind.
pub(crate) async fn warm(client: &NetClient, server: &Server, sockets: u32) {
    server.answer_together(sockets);
    let mut calls = JoinSet::new();
    for _ in 0..sockets {
        calls.spawn(get(client.clone(), server.uri()));
    }
    for body in calls.join_all().await {
        body.expect("an answer");
    }
    server.answer_together(0);
    assert_eq!(server.open_sockets(), sockets);
}

/// Host whose packets are dropped.
pub(crate) const SILENT: &str = "silent";
