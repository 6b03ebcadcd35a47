//! Calls into foreign code, of which one that panics keeps nothing from the others.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls `f` with each of `items`.
///
/// # Panics
///
/// As the first call that panicked did, when all have been made.
pub(crate) fn each<T>(items: Vec<T>, mut f: impl FnMut(T)) {
    let mut first = None;
    for item in items {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(item))) {
            first.get_or_insert(panic);
        }
    }
    if let Some(panic) = first {
        resume_unwind(panic);
    }
}
