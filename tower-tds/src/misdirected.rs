//! After a 421 the next attempt takes another connection (RFC 9110, section 15.5.20).

use std::task::{Context, Poll};

use http::{Request, Response};
use hyper_util::client::legacy::Error;
use tower_service::Service;
use tower_tds_errors::{Attempt, Kind};
use tower_tds_limits::{PermitBody, Track};

use crate::{RequestBody, received::Received, transport::Http};

/// Sends past the pool what a connection of the pool led to the wrong server.
#[derive(Debug, Clone)]
pub(crate) struct Misdirected {
    pooled: Tracked,
    unpooled: Tracked,
}

/// Error answers do not get as far as the limit: their sockets are free when their bodies have been
/// read, right here.
type Tracked = Track<Http>;

// === impl Misdirected ===

impl Misdirected {
    pub(crate) fn new(pooled: Http, unpooled: Http) -> Self {
        Self {
            pooled: Track::new(pooled),
            unpooled: Track::new(unpooled),
        }
    }
}

impl Service<Request<RequestBody>> for Misdirected {
    type Response = Response<PermitBody<Received>>;
    type Error = Error;
    type Future = <Tracked as Service<Request<RequestBody>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Both are always ready.
        self.pooled.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        match Attempt::of(request.extensions()).after() {
            Some(Kind::Misdirected) => self.unpooled.call(request),
            _ => self.pooled.call(request),
        }
    }
}
