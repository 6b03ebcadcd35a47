//! Catching panics of user code.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::Panic;

/// Calls user code and catches its panic. Returns whether it returned without one. Works also while
/// another panic unwinds.
pub(crate) fn contained(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(panic) => {
            drop_panic(panic);
            false
        }
    }
}

/// Drops the payload of a panic.
pub(crate) fn drop_panic(panic: Panic) {
    // The payload may panic when it is dropped, and the payload of that panic, too. Leak the second
    // one.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
}
