//! The connection side: a permit from before `connect` until the server has closed.

mod background;
mod closing;
mod connections;
mod exchange;
mod exit;
mod frames;
mod future;
mod goodbye;
mod io;
mod layer;
mod message;
mod permit;
mod refusals;
mod service;
mod sockets;
mod streams;
mod watched;

pub use self::{
    background::{Background, BackgroundTask},
    future::ConnectFuture,
    io::LimitedIo,
    layer::ConnectionLimitLayer,
    service::ConnectionLimit,
};
pub(crate) use self::{
    connections::{Connections, refused},
    permit::ConnectionPermit,
};

use crate::sync;

/// What a pool takes as a connector's error.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[cfg(test)]
mod tests;
