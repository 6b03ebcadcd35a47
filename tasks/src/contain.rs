//! Panics of user code that go no further.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::Panic;

/// Calls user code; returns whether it returned. If it panics, that goes no further, even while
/// this thread unwinds from another panic.
pub(crate) fn contained(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(panic) => {
            drop_panic(panic);
            false
        }
    }
}

/// Drops what a panic carries.
pub(crate) fn drop_panic(panic: Panic) {
    // It may panic when dropped, and what that carries, too: there it ends.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
}
