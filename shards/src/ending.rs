//! How a node ends: what is done, and in which order, by who won the claim to end it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{
    claim::{End, Outcome},
    node::NodeRef,
    notice::Notice,
    owner::Owner,
    running,
};

/// Ends a node, and its payload with it, if it had not ended before and does not run. Its callback, if
/// it has to be told, is the caller's to tell.
#[must_use]
pub(crate) fn end<O: Owner>(node: &NodeRef<O>, how: Outcome) -> Option<Notice<O>> {
    match node.claim.end(how, node.recurs(), node.tells()) {
        End::Won => ended(node, how),
        _ => None,
    }
}

/// What follows a claim that was won over a node that waited.
#[must_use]
#[inline]
pub(crate) fn ended<O: Owner>(node: &NodeRef<O>, how: Outcome) -> Option<Notice<O>> {
    leave_name(node);
    if node.tells() {
        return Some(Notice::new(node.clone(), how));
    }
    let_go(node, how);
    None
}

/// What follows a claim that was won over a node that had not been started.
pub(crate) fn unstarted<O: Owner>(node: &NodeRef<O>) {
    leave_name(node);
    let_go(node, Outcome::Cancelled);
}

/// Drops the callback, or wakes the task, of a node that is over.
#[inline]
pub(crate) fn let_go<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    node.home.owner().over(node.vtable.kind, how);
    // Last, because it may panic.
    if let Some(end) = node.vtable.end {
        // SAFETY: the claim was won that gives us the payload, and the table is the node's own.
        let end = || unsafe { end(node.as_ptr()) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(end)) {
            node.home.owner().panicked(panic);
        }
    }
}

/// Ends a node that ran, whose callback is used up or let go of.
#[inline]
pub(crate) fn conclude<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    let watched = node.claim.finish(how);
    leave_name(node);
    let owner = node.home.owner();
    owner.over(node.vtable.kind, how);
    if node.tells() {
        owner.told();
    }
    if watched {
        // Last, because foreign wakers may panic.
        node.home.watchers().wake(node.address());
    }
}

/// Tells the callback of a node that is to end so, and ends it.
pub(crate) fn tell<O: Owner>(node: &NodeRef<O>, how: Outcome) -> std::thread::Result<()> {
    let tell = node.vtable.tell.expect("only what has to be told is told");
    // SAFETY: the claim to end it was won, which came with the callback; the table is the node's own.
    let tell = || unsafe { tell(node.as_ptr(), how) };
    let told = running::telling(how, || running::catch(node, tell));
    conclude(node, how);
    told
}

/// Drops the callback of a node that ran and will not run again, and ends it.
///
/// # Panics
///
/// As the callback's destructor does.
pub(crate) fn retire<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    let end = || {
        if let Some(end) = node.vtable.end {
            // SAFETY: who ran it has the callback, and the table is the node's own.
            unsafe { end(node.as_ptr()) };
        }
    };
    // The destructor is a part of the callback, which cannot wait for its own end.
    let dropped = running::catch(node, end);
    conclude(node, how);
    if let Err(panic) = dropped {
        resume_unwind(panic);
    }
}

/// Takes a node that can be cancelled no more out of the list of its name.
#[inline]
pub(crate) fn leave_name<O: Owner>(node: &NodeRef<O>) {
    if let Some(name) = node.extras().and_then(|extras| extras.name.as_ref()) {
        name.leave();
    }
}
