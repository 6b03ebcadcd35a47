//! Which callback the calling thread is inside of: who waits for its own end would wait for ever.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{node::NodeRef, owner::Owner, sync::thread_local};

// The address of the node whose callback this thread runs, or zero. One that runs another inside of
// it (an embedder's may) has it back afterwards. (loom's macro knows no constants.)
#[cfg(not(loom))]
thread_local!(static RUNNING: Cell<usize> = const { Cell::new(0) });
#[cfg(loom)]
thread_local!(static RUNNING: Cell<usize> = Cell::new(0));

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
