//! What threads share state by, where a model test puts loom's in its place.

pub(crate) use std::sync::{Mutex, MutexGuard};
