//! One more try with a new token: layer, service and future.

pub use self::{layer::ReplayLayer, service::Replay};

pub(crate) mod future;
mod layer;
mod service;
