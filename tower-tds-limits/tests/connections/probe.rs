//! A connector that insists on its contract.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, duplex};
use tower::Service;

/// Panics on `call` without Ready, forgets readiness when cloned, gives Pending before each
/// Ready. Its sockets are closed by the other side at once.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    asked: bool,
    ready: bool,
}

// === impl Probe ===

impl Service<Uri> for Probe {
    type Response = TokioIo<DuplexStream>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.asked {
            self.ready = true;
            Poll::Ready(Ok(()))
        } else {
            self.asked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        assert!(self.ready, "called without readiness");
        *self = Self::default();
        let (socket, _closed) = duplex(64);
        ready(Ok(TokioIo::new(socket)))
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self::default()
    }
}
