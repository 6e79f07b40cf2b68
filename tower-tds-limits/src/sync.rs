//! Locks and atomics; loom's in a model test.

pub(crate) use std::sync::{Mutex, MutexGuard};
