//! The link of a node: whether the node is queued in an inbox, and which node follows it there.
//!
//! `shard/inbox.rs` has the rules.

use std::ptr::{null_mut, without_provenance_mut};

use tourbillon_sync::{AtomicPtr, Ordering};

/// Returns the link of the last node of an inbox.
fn tail<T>() -> *mut T {
    without_provenance_mut(2)
}

/// The link of a node whose header is a `T`. Null means that the node is not queued. Otherwise it
/// is the next node in the inbox, or will be once the node is pushed.
pub(crate) struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Returns the link to the first node of an inbox with this head.
    fn to(head: *mut T) -> *mut T {
        if head.is_null() { tail() } else { head }
    }

    /// Marks the node as queued before `head`. Returns `false` if it is queued already.
    ///
    /// A link that is set is written again as it is. By that write the drainer sees the caller's
    /// earlier changes.
    pub(crate) fn queue(&self, head: *mut T) -> bool {
        let mut link = null_mut::<T>();
        loop {
            let next = if link.is_null() { Self::to(head) } else { link };
            match self
                .0
                .compare_exchange_weak(link, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return link.is_null(),
                Err(now) => link = now,
            }
        }
    }

    /// Marks a node as queued before `head`. Only the caller knows the node.
    pub(crate) fn queue_new(&self, head: *mut T) {
        self.0.store(Self::to(head), Ordering::Relaxed);
    }

    /// Changes the next node to `head`. The caller has queued the node and not pushed it yet. This
    /// is no plain store: after a store the drainer would not see what other threads wrote here
    /// meanwhile.
    pub(crate) fn relink(&self, head: *mut T) {
        self.0.swap(Self::to(head), Ordering::AcqRel);
    }

    /// Takes the next node. From then on the node is not queued.
    pub(crate) fn take(&self) -> *mut T {
        let next = self.0.swap(null_mut(), Ordering::AcqRel);
        if next == tail() { null_mut() } else { next }
    }
}
