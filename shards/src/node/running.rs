//! Per-thread record of the callbacks that are running, so that a callback cannot wait for its own
//! end.

use std::{
    cell::Cell,
    iter,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr,
};

use tourbillon_sync::thread_cell;

use crate::answer::Outcome;

/// A callback that runs. A callback may run another one inside of it.
struct Frame {
    /// Address of its node.
    node: usize,
    /// The callback around it, or null.
    outer: *const Frame,
}

// The innermost callback that this thread runs, or null. The frame is on the stack of `catch`.
thread_cell!(static RUNNING: Cell<*const Frame> = Cell::new(ptr::null()));

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
    let outer = RUNNING.try_with(Cell::get).unwrap_or(ptr::null());
    let frame = Frame { node, outer };
    let set = |frame| _ = RUNNING.try_with(|running| running.set(frame));
    set(&raw const frame);
    let result = catch_unwind(AssertUnwindSafe(run));
    set(outer);
    result
}

/// Returns whether the calling thread is inside of the callback of the node at this address.
pub(crate) fn is_inside(node: usize) -> bool {
    let innermost = RUNNING.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: each frame that the list reaches is on this thread's stack, in a call of `catch` that
    // has not returned: `catch` takes its frame out before it returns, and no panic skips that.
    let next = |frame: *const Frame| unsafe { frame.as_ref() };
    iter::successors(next(innermost), |frame| next(frame.outer)).any(|frame| frame.node == node)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_of_all_nested_callbacks() {
        let inside = || [1, 2, 3].map(is_inside);
        let outer = catch(1, || {
            let inner = catch(2, || {
                assert_eq!(inside(), [true, true, false]);
                panic!("the inner callback panics");
            });
            assert!(inner.is_err());
            assert_eq!(inside(), [true, false, false]);
        });
        assert!(outer.is_ok());
        assert_eq!(inside(), [false; 3]);
    }
}
