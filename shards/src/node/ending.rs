//! End of a timer: the steps that the thread takes which won the claim to end it, in their order.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{
    answer::Outcome,
    node::{NodeRef, claim::End, running},
    owner::{Notice, Owner},
};

/// Ends a timer with the outcome `how`, and drops its payload, unless it is over or runs for the
/// last time. A recurring timer that runs ends after this run. If the callback takes outcomes,
/// returns the notice, which the caller must deliver.
#[must_use]
pub(crate) fn end<O: Owner>(node: &NodeRef<O>, how: Outcome) -> Option<Notice<O>> {
    match node.claim.end(how, node.recurs(), node.takes_outcome()) {
        End::Won => ended(node, how),
        _ => None,
    }
}

/// Completes the end of a timer that waited, after the caller won the claim. If the callback takes
/// outcomes, returns the notice, which the caller must deliver.
#[must_use]
#[inline]
pub(crate) fn ended<O: Owner>(node: &NodeRef<O>, how: Outcome) -> Option<Notice<O>> {
    leave_name(node);
    if node.takes_outcome() {
        return Some(Notice::new(node.clone(), how));
    }
    let_go(node, how);
    None
}

/// Completes the end of a timer that had not been started, after the caller won the claim.
pub(crate) fn unstarted<O: Owner>(node: &NodeRef<O>) {
    leave_name(node);
    let_go(node, Outcome::Cancelled);
}

/// Reports a timer as over, and drops its callback or wakes its task. The caller won the claim to
/// it.
#[inline]
pub(crate) fn let_go<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    node.home.owner().over(node.vtable.kind, how);
    // This step is the last, because it may panic.
    if let Some(end) = node.vtable.end {
        // SAFETY: the caller won the claim, which gives it the payload, and the table is the node's
        // own.
        let end = || unsafe { end(node.as_ptr()) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(end)) {
            node.home.owner().panicked(panic);
        }
    }
}

/// Ends a timer that ran, whose callback has been used or dropped: moves it to Over, and wakes the
/// threads that wait for that.
#[inline]
pub(crate) fn conclude<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    // First the claim word: the mark tells whether a waker is in the list. See "Waiting for the
    // end" in `PROTOCOLS.md`.
    let awaited = node.claim.finish(how);
    leave_name(node);
    let owner = node.home.owner();
    owner.over(node.vtable.kind, how);
    if node.takes_outcome() {
        owner.outcome_delivered();
    }
    if awaited {
        // This step is the last, because wakers are user code and may panic.
        node.home.waiters().wake(node.address());
    }
}

/// Calls the callback of a stopping timer with its outcome, and ends the timer. Returns the panic
/// of the callback, if any.
pub(crate) fn deliver<O: Owner>(node: &NodeRef<O>, how: Outcome) -> std::thread::Result<()> {
    let deliver = node.vtable.deliver.expect("the callback takes outcomes");
    // SAFETY: this thread, or the one that made its notice, won the claim that comes with the
    // callback; the table is the node's own.
    let deliver = || unsafe { deliver(node.as_ptr(), how) };
    let result = running::delivering(how, || running::catch(node.address(), deliver));
    conclude(node, how);
    result
}

/// Drops the callback of a recurring timer that ran for the last time, and ends the timer.
///
/// # Panics
///
/// Panics if the destructor of the callback does. The timer is over all the same.
pub(crate) fn retire<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    let end = || {
        if let Some(end) = node.vtable.end {
            // SAFETY: the thread that ran the callback owns it, and the table is the node's own.
            unsafe { end(node.as_ptr()) };
        }
    };
    // The destructor counts as inside of the callback: it would deadlock if it waited for the
    // timer's end.
    let dropped = running::catch(node.address(), end);
    conclude(node, how);
    if let Err(panic) = dropped {
        resume_unwind(panic);
    }
}

/// Removes a timer that can no longer be cancelled from the list of its name.
#[inline]
pub(crate) fn leave_name<O: Owner>(node: &NodeRef<O>) {
    if let Some(leave) = node.vtable.leave_name {
        // SAFETY: the node is alive, and the table is its own.
        unsafe { leave(node.as_ptr()) };
    }
}
