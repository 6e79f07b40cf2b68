//! What the shared parts are built of; the model test puts loom's in its place.

pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

pub(super) use arc_swap::{ArcSwapOption, Guard};
pub(super) use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::{sleep, timeout, timeout_at},
};

pub(super) use super::patience::Patience;
