//! Calls into foreign code, of which one that panics keeps nothing from the others.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Drops what a panic carries, which may panic in its turn.
pub(crate) fn forget(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

/// Calls `f` with each of `items`.
///
/// # Panics
///
/// As the first call that panicked did, when all have been made.
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
