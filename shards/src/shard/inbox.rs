//! The inbox of a shard: an intrusive stack. Any thread pushes nodes, and the drainer takes the
//! whole stack at once.
//!
//! A node has its own link, so a push allocates nothing. A push, of one node or of a chain, is one
//! compare-exchange, so a node is at any moment either in the stack or not. (Vyukov's queue has a
//! moment in between, and a consumer that is about to sleep could find it empty.)
//!
//! **No update is lost.** A thread with an update changes the claim word of the node first. Then it
//! marks the node as queued in its link, and pushes the node if it was not queued. The drainer
//! takes the link, which ends the mark, and then reads the claim word. All accesses to the link of
//! a shared node are read-modify-writes. So either the drainer's access comes second and sees the
//! change, or the other thread finds the node not queued and pushes it again. See "Pending updates"
//! in `PROTOCOLS.md`.
//!
//! The inbox owns a reference to each node in it.

use std::{
    mem,
    ptr::{NonNull, null_mut, without_provenance_mut},
};

use tourbillon_sync::{AtomicPtr, Changed, Ordering, foreign::each, prefetch};

use crate::{
    node::{NodeRef, header::Header},
    owner::Owner,
};

/// Prefetch distance of a [`Batch`], in nodes.
const AHEAD: usize = 8;

/// Returns the head of an inbox whose shard is closed.
fn closed<O: Owner>() -> *mut Header<O> {
    without_provenance_mut(1)
}

/// References to one node or more, for the inbox.
pub(crate) trait New<O: Owner>:
    AsRef<[NodeRef<O>]> + IntoIterator<Item = NodeRef<O>>
{
}

impl<O: Owner, N: AsRef<[NodeRef<O>]> + IntoIterator<Item = NodeRef<O>>> New<O> for N {}

/// The stack of nodes that remote threads have pushed.
pub(crate) struct Inbox<O: Owner> {
    /// The last pushed node; null if there is none, or [`closed`].
    head: AtomicPtr<Header<O>>,
}

impl<O: Owner> Inbox<O> {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(null_mut()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::Acquire);
        head.is_null() || head == closed()
    }

    /// Pushes a node, unless it is queued already. Returns `false` if the inbox is closed; then the
    /// node is not queued.
    pub(crate) fn push(&self, node: &NodeRef<O>) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        !node.link.queue(head) || self.push_queued([node.clone()], head, || ()).is_ok()
    }

    /// Pushes nodes that only the caller knows, by one exchange. Gives them back if the inbox is
    /// closed. Calls `met` each time that another thread was at the inbox.
    pub(crate) fn push_new<N: New<O>>(&self, nodes: N, met: impl Fn()) -> Result<Changed, N> {
        let head = self.head.load(Ordering::Relaxed);
        let mut next = head;
        for node in nodes.as_ref() {
            node.link.queue_new(next);
            next = node.as_ptr().as_ptr();
        }
        self.push_queued(nodes, head, met)
    }

    /// Pushes nodes that the caller has queued, the first one before `head` and each other one
    /// before its predecessor.
    fn push_queued<N: New<O>>(
        &self,
        nodes: N,
        mut head: *mut Header<O>,
        met: impl Fn(),
    ) -> Result<Changed, N> {
        let ends = nodes.as_ref().first().zip(nodes.as_ref().last());
        let (first, last) = ends.expect("the caller has a node");
        loop {
            if head == closed() {
                // The read that found this was relaxed. The head of a closed inbox stays, so this
                // read finds it too, and makes the closer's changes visible to the caller.
                let again = self.head.load(Ordering::Acquire);
                debug_assert!(again == closed());
                // As a drainer does: a thread that found the node queued relies on what the caller
                // does with it.
                nodes.as_ref().iter().for_each(|node| _ = node.link.take());
                return Err(nodes);
            }
            // It releases: the drainer sees the nodes and their links.
            match Changed::exchange(&self.head, head, last.as_ptr().as_ptr()) {
                Ok(changed) => {
                    // The inbox owns the references now.
                    nodes.into_iter().for_each(mem::forget);
                    return Ok(changed);
                }
                Err(now) => {
                    head = now;
                    // The link is this thread's until the push succeeds.
                    first.link.relink(head);
                    met();
                }
            }
        }
    }

    /// Takes all nodes. The caller has the shard's lock.
    ///
    /// A thread that pushes after this sees the caller's earlier changes. For that, an empty inbox
    /// is swapped, too, and not only read ("Published words" in `PROTOCOLS.md`).
    pub(crate) fn take(&self) -> Batch<O> {
        // Only a closer writes CLOSED, and it holds the lock that the caller has.
        if self.head.load(Ordering::Acquire) == closed() {
            return Batch::empty();
        }
        Batch::of(self.head.swap(null_mut(), Ordering::AcqRel))
    }

    /// Takes all nodes, and closes the inbox. The caller has the shard's lock.
    pub(crate) fn close(&self) -> Batch<O> {
        let head = self.head.swap(closed(), Ordering::AcqRel);
        Batch::of(if head == closed() { null_mut() } else { head })
    }
}

/// A list of nodes taken from an inbox, newest first.
pub(crate) struct Batch<O: Owner> {
    head: *mut Header<O>,
}

// SAFETY: the list owns its references, which are Send, and no other thread follows its links.
unsafe impl<O: Owner> Send for Batch<O> {}

impl<O: Owner> Batch<O> {
    fn of(head: *mut Header<O>) -> Self {
        Self { head }
    }

    pub(crate) fn empty() -> Self {
        Self::of(null_mut())
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
        self.head = node.link.take();
        // The link is the only way to the next node, and reading it misses the cache. But a thread
        // that arms many timers takes their nodes in the order of memory. So the node `AHEAD` steps
        // on is probably at `AHEAD` times the distance from this node to the next.
        let stride = self.head.addr().wrapping_sub(ptr.addr().get());
        prefetch(self.head.wrapping_byte_add(stride.wrapping_mul(AHEAD)), 1);
        Some(node)
    }
}

impl<O: Owner> Drop for Batch<O> {
    fn drop(&mut self) {
        each(self, drop);
    }
}
