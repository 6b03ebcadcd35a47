//! Which callback the calling thread is inside of: who waits for its own end would wait for ever.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use crate::{claim::Outcome, node::NodeRef, owner::Owner, sync::thread_local};

// The address of the node whose callback this thread runs, or zero. One that runs another inside of
// it (an embedder's may) has it back afterwards. (loom's macro knows no constants.)
#[cfg(not(loom))]
thread_local!(static RUNNING: Cell<usize> = const { Cell::new(0) });
#[cfg(loom)]
thread_local!(static RUNNING: Cell<usize> = Cell::new(0));

// Whether the callback that this thread runs is being told of a shutdown.
#[cfg(not(loom))]
thread_local!(static ENDING: Cell<bool> = const { Cell::new(false) });
#[cfg(loom)]
thread_local!(static ENDING: Cell<bool> = Cell::new(false));

/// Whether the calling thread is inside of a callback that is being told [`Outcome::Shutdown`].
///
/// What such a callback starts anew on what is shut down would be told so at once, and again and
/// again if it answers by starting itself: runtimes use this to refuse it.
pub fn is_told_of_shutdown() -> bool {
    ENDING.try_with(Cell::get).unwrap_or(false)
}

/// Runs `tell`, which tells a callback how its timer ended.
pub(crate) fn telling<R>(how: Outcome, tell: impl FnOnce() -> R) -> R {
    let replace = |ending| {
        ENDING
            .try_with(|cell| cell.replace(ending))
            .unwrap_or(false)
    };
    let outer = replace(how == Outcome::Shutdown);
    let told = tell();
    replace(outer);
    told
}

/// Tells a callback whose timer was never armed that its runtime has been shut down, unless the
/// calling thread is inside of one that is being told so: then it drops it.
///
/// # Panics
///
/// As the callback does.
pub fn tell_of_shutdown(f: impl FnOnce(Outcome)) {
    if is_told_of_shutdown() {
        return;
    }
    let tell = || catch_unwind(AssertUnwindSafe(|| f(Outcome::Shutdown)));
    if let Err(panic) = telling(Outcome::Shutdown, tell) {
        resume_unwind(panic);
    }
}

/// Runs the callback of `node`, and catches its panic.
#[inline]
pub(crate) fn catch<O: Owner, R>(
    node: &NodeRef<O>,
    run: impl FnOnce() -> R,
) -> std::thread::Result<R> {
    let outer = replace(node.address());
    let result = catch_unwind(AssertUnwindSafe(run));
    replace(outer);
    result
}

#[inline]
fn replace(address: usize) -> usize {
    RUNNING
        .try_with(|running| running.replace(address))
        .unwrap_or(0)
}

/// Whether the calling thread is inside of the callback of `node`.
pub(crate) fn is_inside<O: Owner>(node: &NodeRef<O>) -> bool {
    RUNNING
        .try_with(|running| running.get() == node.address())
        .unwrap_or(false)
}
