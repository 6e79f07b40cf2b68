//! What a gate is locked with; the model test puts loom's in its place.

pub(super) use std::sync::{Mutex, MutexGuard};
