//! Locking of mutexes without poisoning.

use std::sync::PoisonError;

use crate::sys::sync::{Mutex, MutexGuard};

/// Locks `mutex`. The data behind it is consistent even after a panic, so poisoning is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
