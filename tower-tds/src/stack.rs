//! Layers in their order.

pub(crate) mod layer;
pub(crate) mod named;
