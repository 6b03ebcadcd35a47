//! The tolerance that the calling thread gives to the timers that it arms.

use std::cell::Cell;

use tourbillon_shards::Tolerance;

thread_local! {
    /// The code of the tolerance of the innermost scope, plus one. Zero: the thread is in no scope.
    static SCOPE: Cell<u8> = const { Cell::new(0) };
}

/// Returns whether the calling thread is in a scope.
#[inline]
pub(crate) fn is_scoped() -> bool {
    SCOPE.get() != 0
}

/// Returns the tolerance of the innermost scope of the calling thread.
pub(crate) fn scoped() -> Option<Tolerance> {
    SCOPE.get().checked_sub(1).map(Tolerance::from_code)
}

/// Runs `f` in a scope: timers that it arms have this tolerance.
#[inline]
pub(crate) fn within<R>(tolerance: Tolerance, f: impl FnOnce() -> R) -> R {
    // No tolerance has the code 255.
    with_scope(tolerance.code() + 1, f)
}

/// Runs `f` in no scope, and restores the scope of the calling thread afterwards.
pub(crate) fn apart<R>(f: impl FnOnce() -> R) -> R {
    with_scope(0, f)
}

#[inline]
fn with_scope<R>(scope: u8, f: impl FnOnce() -> R) -> R {
    struct Reset(u8);
    impl Drop for Reset {
        fn drop(&mut self) {
            SCOPE.set(self.0);
        }
    }
    let _reset = Reset(SCOPE.replace(scope));
    f()
}
