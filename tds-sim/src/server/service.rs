//! The three listeners' services.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;

use crate::{data, future::ResponseFuture, oidc, server::admin, sim::Sim, socket::Socket};

/// The purpose of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Auth,
    Data,
    Admin,
}

// === impl Door ===

impl Door {
    /// What to say when its port cannot be had.
    pub(super) const fn taken(self) -> &'static str {
        match self {
            Self::Auth => "the auth port is not free, choose another, or 0 for a free one",
            Self::Data => "the data port is not free, choose another, or 0 for a free one",
            Self::Admin => "the admin port is not free, choose another, or 0 for a free one",
        }
    }

    /// The answer to a request on a connection of this listener.
    pub(super) fn answer(
        self,
        sim: &Sim,
        socket: &Arc<Socket>,
        request: Request<Incoming>,
    ) -> ResponseFuture {
        let (shared, socket) = (Arc::clone(sim.shared()), Arc::clone(socket));
        match self {
            Self::Auth => ResponseFuture::new(oidc::answer(shared, Some(socket), request)),
            Self::Data => {
                let peer = socket.peer();
                ResponseFuture::new(data::answer(shared, Some(socket), peer, request))
            }
            Self::Admin => ResponseFuture::new(admin::answer(sim.clone(), request)),
        }
    }
}
