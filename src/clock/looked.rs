//! When the worker of a thread was last in its loop, where it looks at its timers.
//!
//! A deadline that is well after this has not passed, unless jobs hold the worker for long. So a
//! sleep with such a deadline is armed without a reading of the clock, which would be a sixth of
//! the cost. If the deadline has passed nevertheless, the sleep ends when the worker is back in its
//! loop, as do all others of this worker.

use std::cell::Cell;

use crate::sys::ticks;

/// How far a moment must be after the worker was in its loop, in ns. It usually comes back several
/// times within this.
const WELL_AFTER: i64 = 1_000_000;

thread_local! {
    /// Later moments of the kernel's monotonic clock, in ns, have not passed.
    static AHEAD: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// Notes that the thread is a worker that looks at its timers, at this moment of the kernel's
/// monotonic clock, in ns.
#[inline]
pub(crate) fn note(at: i64) {
    AHEAD.set(at.saturating_add(WELL_AFTER));
}

/// Forgets the last look: the thread is no worker, or may not look again for long.
pub(crate) fn forget() {
    AHEAD.set(i64::MAX);
}

/// Returns whether a moment of the kernel's monotonic clock, in ns, has passed. It does not read the
/// clock if the moment is well after the last look, and then returns `false`.
#[inline]
pub(crate) fn has_passed(moment: i64) -> bool {
    !is_well_after(moment) && ticks::has_passed(moment)
}

/// Returns whether a moment is well after the last look. It is not if the thread is no worker.
#[inline]
fn is_well_after(moment: i64) -> bool {
    moment > AHEAD.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_well_after_a_look_that_is_remembered() {
        assert!(!is_well_after(i64::MAX), "this thread is no worker");
        note(5);
        assert!(!is_well_after(5 + WELL_AFTER));
        assert!(is_well_after(6 + WELL_AFTER));
        forget();
        assert!(!is_well_after(i64::MAX));
        note(i64::MAX - 1);
        assert!(!is_well_after(i64::MAX));
    }
}
