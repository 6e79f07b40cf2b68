//! A network of servers in this process, for tests under a paused clock.

use std::{
    future::{Ready, ready},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::io::DuplexStream;
use tower::Service;

use crate::server::Server;

/// Connects to whichever of its servers the URI names.
#[derive(Clone)]
pub(crate) struct Net {
    servers: Arc<Vec<Server>>,
}

/// A pipe to a server.
pub(crate) struct Pipe(TokioIo<DuplexStream>);

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
    type Future = Ready<io::Result<Pipe>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let server = self.server(target.host().expect("a host"));
        ready(Ok(Pipe(TokioIo::new(server.connect()))))
    }
}

// === impl Pipe ===

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
