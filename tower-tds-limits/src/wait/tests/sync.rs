//! A lock that counts how often each thread takes one.

use std::{
    cell::Cell,
    sync::{self, LockResult, TryLockResult},
};

pub(crate) use std::sync::{Arc, MutexGuard};

thread_local! {
    /// How often this thread has taken a lock.
    pub(crate) static LOCKS: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        LOCKS.set(LOCKS.get() + 1);
        self.0.lock()
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock()
    }
}
