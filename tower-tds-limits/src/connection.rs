//! The connection side: a permit from before `connect` until the server has closed.

mod background;
mod closing;
mod connections;
mod future;
mod io;
mod layer;
mod service;

pub(crate) use self::connections::{ConnectionPermit, Connections};
pub use self::{
    background::{Background, BackgroundTask},
    future::ConnectFuture,
    io::LimitedIo,
    layer::ConnectionLimitLayer,
    service::ConnectionLimit,
};

/// What a pool takes as a connector's error.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
