//! One more try with a new token: layer, service and future.

pub use self::{layer::BearerReplayLayer, service::BearerReplay};

pub(crate) mod future;
mod layer;
mod service;
