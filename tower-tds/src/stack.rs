//! Layers in their order, and the conversions that join them.

pub(crate) mod layer;
pub(crate) mod translate;
