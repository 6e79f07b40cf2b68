//! After a 421 the next attempt takes another connection (RFC 9110, section 15.5.20).

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy::{
    self, Error,
    connect::{CaptureConnection, capture_connection},
};
use pin_project_lite::pin_project;
use tower_service::Service;
use tower_tds_errors::Attempt;

use crate::{RequestBody, transport::Http};

/// Keeps attempts off the connection that led the attempt before to the wrong server.
///
/// From an answer to its connection leads what was captured with the request alone, and that costs
/// each call five allocations. So it begins with the first 421, which most clients never see; the
/// retry of that one, and each retry from then on, goes past the pool.
#[derive(Debug, Clone)]
pub(crate) struct Misdirected {
    pooled: Http,
    unpooled: Http,
    /// Whether there was ever a 421. Relaxed: it orders nothing, and whoever misses it is the next
    /// to set it.
    met: Arc<AtomicBool>,
}

pin_project! {
    pub(crate) struct ResponseFuture {
        #[pin]
        inner: legacy::ResponseFuture,
        connection: Option<CaptureConnection>,
        met: Arc<AtomicBool>,
    }
}

// === impl Misdirected ===

impl Misdirected {
    pub(crate) fn new(pooled: Http, unpooled: Http) -> Self {
        Self {
            pooled,
            unpooled,
            met: Arc::default(),
        }
    }
}

impl Service<Request<RequestBody>> for Misdirected {
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.pooled.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> ResponseFuture {
        let met = self.met.load(Ordering::Relaxed);
        let first = Attempt::of(request.extensions()).number() == 1;
        let connection = (met && first).then(|| capture_connection(&mut request));
        let http = if met && !first {
            &self.unpooled
        } else {
            &self.pooled
        };
        ResponseFuture {
            inner: http.request(request),
            connection,
            met: Arc::clone(&self.met),
        }
    }
}

// === impl ResponseFuture ===

impl Future for ResponseFuture {
    type Output = Result<Response<Incoming>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        if response.status() == StatusCode::MISDIRECTED_REQUEST {
            this.met.store(true, Ordering::Relaxed);
            if let Some(captured) = this.connection
                && let Some(connection) = &*captured.connection_metadata()
            {
                connection.poison();
            }
        }
        Poll::Ready(Ok(response))
    }
}
