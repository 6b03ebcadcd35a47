//! The inbox of a shard: an intrusive stack to which any thread pushes and which is taken whole.
//!
//! A node is its own link, so that a push allocates nothing; and since a push is one
//! compare-exchange there is no moment at which a node is neither in nor out, as there is in
//! Vyukov's queue, where a consumer about to sleep could take the gap for emptiness.
//!
//! **No news is lost.** Who has news of a node changes its claim word first, then swaps `queued` to
//! true, and pushes if it was false. Who drains reads `next`, then swaps `queued` to false, then
//! reads the word. Both swaps are read-modify-writes of one location: either the drainer's comes
//! after the setter's and sees its change, or the setter finds `false` and pushes again.
//!
//! Standing in an inbox owns a reference.

use std::ptr::{NonNull, without_provenance_mut};

use crate::{
    node::{Header, NodeRef},
    owner::Owner,
    sync::{AtomicPtr, Ordering},
};

/// The head of an inbox whose shard is closed.
fn closed<O: Owner>() -> *mut Header<O> {
    without_provenance_mut(1)
}

pub(crate) struct Inbox<O: Owner> {
    head: AtomicPtr<Header<O>>,
}

impl<O: Owner> Inbox<O> {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::Acquire);
        head.is_null() || head == closed()
    }

    /// Pushes a node whose `queued` the caller has just changed from false to true; gives it back,
    /// and not queued any more, if the inbox is closed.
    pub(crate) fn push(&self, node: NodeRef<O>) -> Result<(), NodeRef<O>> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == closed() {
                // As a drainer does: who found it queued relies on what the caller does with it now.
                node.queued.swap(false, Ordering::AcqRel);
                return Err(node);
            }
            node.next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(
                head,
                node.as_ptr().as_ptr(),
                // Release: the drainer sees the node and its link. Acquire: who finds the inbox
                // closed sees what the closer did.
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    // The inbox owns the reference now.
                    node.into_raw();
                    return Ok(());
                }
                Err(now) => head = now,
            }
        }
    }

    /// Takes all that is there. For whoever holds the shard's lock.
    pub(crate) fn take(&self) -> Batch<O> {
        if self.is_empty() {
            return Batch::empty();
        }
        // Only a closer makes the head CLOSED, and it holds the lock that we hold.
        Batch {
            head: self.head.swap(std::ptr::null_mut(), Ordering::AcqRel),
        }
    }

    /// Takes all that is there, and lets nothing in any more. For whoever holds the shard's lock.
    pub(crate) fn close(&self) -> Batch<O> {
        let head = self.head.swap(closed(), Ordering::AcqRel);
        Batch {
            head: if head == closed() {
                std::ptr::null_mut()
            } else {
                head
            },
        }
    }
}

/// A list of nodes taken from an inbox, newest first.
pub(crate) struct Batch<O: Owner> {
    head: *mut Header<O>,
}

// SAFETY: the list owns its references, which are Send, and nobody else follows its links.
unsafe impl<O: Owner> Send for Batch<O> {}

impl<O: Owner> Batch<O> {
    pub(crate) fn empty() -> Self {
        Self {
            head: std::ptr::null_mut(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }
}

impl<O: Owner> Iterator for Batch<O> {
    type Item = NodeRef<O>;

    fn next(&mut self) -> Option<NodeRef<O>> {
        let ptr = NonNull::new(self.head)?;
        // SAFETY: the list owns a reference to each of its nodes, and gives it up here.
        let node = unsafe { NodeRef::from_raw(ptr) };
        // The link first: as soon as `queued` is false, a setter may push the node again.
        self.head = node.next.load(Ordering::Relaxed);
        node.queued.swap(false, Ordering::AcqRel);
        Some(node)
    }
}

impl<O: Owner> Drop for Batch<O> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
