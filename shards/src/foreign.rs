//! Calls of user code. A panic of one call does not keep the others from being made.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Drops the payload of a panic. If its destructor panics as well, leaks that second payload.
pub(crate) fn forget(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

/// Calls `f` with each of `items`, even if some of the calls panic.
///
/// # Panics
///
/// Panics with the payload of the first call that panicked, after all calls have been made.
pub(crate) fn each<T>(items: Vec<T>, mut f: impl FnMut(T)) {
    let mut first = None;
    for item in items {
        match catch_unwind(AssertUnwindSafe(|| f(item))) {
            Err(panic) if first.is_none() => first = Some(panic),
            Err(panic) => forget(panic),
            Ok(()) => {}
        }
    }
    if let Some(panic) = first {
        resume_unwind(panic);
    }
}
