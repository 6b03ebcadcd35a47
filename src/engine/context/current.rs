//! Whether the calling thread is a given worker.

use std::{cell::Cell, ptr};

thread_local! {
    /// The address of this thread's worker, or null. Compared, and never followed.
    static CURRENT: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Returns whether the calling thread is the worker at address `core`.
#[inline]
pub(crate) fn is_current<T>(core: &T) -> bool {
    CURRENT
        .try_with(|current| ptr::eq(current.get(), ptr::from_ref(core).cast()))
        .unwrap_or(false)
}

/// Makes the calling thread the worker at address `core`, or no worker if it is null. Returns the
/// address of the worker that it was before.
pub(crate) fn replace<T>(core: *const T) -> *const () {
    CURRENT.replace(core.cast())
}
