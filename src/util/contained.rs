//! Calls of user code whose panic must not unwind into the runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs user code and catches its panic. Returns `false` if it panicked.
pub(crate) fn contained(f: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else {
        return true;
    };
    // The payload's destructor is user code, too: it may panic, and so may that panic's payload.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    false
}
