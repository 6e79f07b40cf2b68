//! The parts of a flight that its loom model replaces.

pub(super) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

pub(super) use arc_swap::ArcSwapOption;
pub(super) use futures_util::{FutureExt, future::Shared};
pub(super) use tokio::{runtime::Handle, task::JoinHandle};
