//! The one way a lock is taken here: a panic elsewhere does not make the ledger unreadable.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes `mutex`, poisoned or not.
///
/// The data behind every lock of this crate is consistent at each statement, so a panic of
/// another holder leaves nothing half done. No `.await` ever happens under one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
