//! Per-thread record of the callback that is running, so that a callback cannot wait for its own
//! end.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use crate::{answer::Outcome, sync::thread_cell};

// Address of the node whose callback this thread runs, or zero. A callback may run another one
// inside of it; the outer address is then restored afterwards.
thread_cell!(static RUNNING: Cell<usize> = Cell::new(0));

// Whether the callback that this thread runs is receiving `Outcome::Shutdown`.
thread_cell!(static ENDING: Cell<bool> = Cell::new(false));

/// Returns whether the calling thread is inside of a callback that is receiving
/// [`Outcome::Shutdown`].
///
/// A runtime uses this to refuse timers that such a callback starts on a closed shard. They would
/// receive `Shutdown` at once, and a callback that restarts itself would never end.
pub fn is_told_of_shutdown() -> bool {
    ENDING.try_with(Cell::get).unwrap_or(false)
}

/// Runs `deliver`, which delivers the outcome `how` to a callback.
pub(crate) fn delivering<R>(how: Outcome, deliver: impl FnOnce() -> R) -> R {
    let replace = |ending| {
        ENDING
            .try_with(|cell| cell.replace(ending))
            .unwrap_or(false)
    };
    let outer = replace(how == Outcome::Shutdown);
    let result = deliver();
    replace(outer);
    result
}

/// Calls a callback whose timer was never armed with [`Outcome::Shutdown`], because its runtime has
/// been shut down. If the calling thread is already inside of such a call, drops the callback
/// instead.
///
/// # Panics
///
/// Panics if the callback does.
pub fn tell_of_shutdown(f: impl FnOnce(Outcome)) {
    if is_told_of_shutdown() {
        return;
    }
    let deliver = || catch_unwind(AssertUnwindSafe(|| f(Outcome::Shutdown)));
    if let Err(panic) = delivering(Outcome::Shutdown, deliver) {
        resume_unwind(panic);
    }
}

/// Runs the callback of the node at this address, and catches its panic.
#[inline]
pub(crate) fn catch<R>(node: usize, run: impl FnOnce() -> R) -> std::thread::Result<R> {
    let outer = replace(node);
    let result = catch_unwind(AssertUnwindSafe(run));
    replace(outer);
    result
}

/// Sets the address of the node whose callback runs, and returns the previous one.
#[inline]
fn replace(address: usize) -> usize {
    RUNNING
        .try_with(|running| running.replace(address))
        .unwrap_or(0)
}

/// Returns whether the calling thread is inside of the callback of the node at this address.
pub(crate) fn is_inside(node: usize) -> bool {
    RUNNING
        .try_with(|running| running.get() == node)
        .unwrap_or(false)
}
