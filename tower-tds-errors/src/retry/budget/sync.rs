//! What the ledger is built of; the model test puts loom's in its place.

pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
