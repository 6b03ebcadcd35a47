//! The inbox of a shard: an intrusive stack to which any thread pushes and which is taken whole.
//!
//! A node is its own link, so that a push allocates nothing; and since a push is one
//! compare-exchange there is no moment at which a node is neither in nor out, as there is in
//! Vyukov's queue, where a consumer about to sleep could take the gap for emptiness.
//!
//! **No news is lost.** Who has news of a node changes its claim word first, then makes its link say that
//! it is queued, and pushes if it was not. Who drains takes the link, which says so no more, and then reads
//! the word. All that is done to the link of a node that others know is read-modify-writes: either the
//! drainer's comes after the setter's and sees its change, or the setter finds the node not queued and
//! pushes again.
//!
//! Standing in an inbox owns a reference.

use std::ptr::{NonNull, null_mut, without_provenance_mut};

use crate::{
    node::{Header, NodeRef},
    owner::Owner,
    prefetch::prefetch,
    sync::{AtomicPtr, Ordering},
};

/// Prefetch distance of a [`Batch`], in nodes.
const AHEAD: usize = 8;

/// The head of an inbox whose shard is closed.
fn closed<O: Owner>() -> *mut Header<O> {
    without_provenance_mut(1)
}

/// The link of a node behind which there is none.
fn tail<O: Owner>() -> *mut Header<O> {
    without_provenance_mut(2)
}

/// The link of a node: null, if it is not queued; otherwise what follows it in an inbox, or will once it
/// is pushed.
pub(crate) struct Link<O: Owner>(AtomicPtr<Header<O>>);

impl<O: Owner> Link<O> {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The link to what a head says is first.
    fn to(head: *mut Header<O>) -> *mut Header<O> {
        if head.is_null() { tail() } else { head }
    }

    /// Makes it say that the node is queued, before `head`; false if it says so already.
    ///
    /// A link that stands is written again as it is: so the drainer sees what the caller did before.
    fn queue(&self, head: *mut Header<O>) -> bool {
        let mut link = null_mut::<Header<O>>();
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

    /// The same for a node of which nobody else knows.
    fn queue_new(&self, head: *mut Header<O>) {
        self.0.store(Self::to(head), Ordering::Relaxed);
    }

    /// What follows becomes `head`. For who queued it, and did not push it yet. No plain store, by which
    /// the drainer would not see what others wrote here meanwhile.
    fn relink(&self, head: *mut Header<O>) {
        self.0.swap(Self::to(head), Ordering::AcqRel);
    }

    /// Takes what follows; from now on the node is not queued.
    fn take(&self) -> *mut Header<O> {
        let next = self.0.swap(null_mut(), Ordering::AcqRel);
        if next == tail() { null_mut() } else { next }
    }
}

pub(crate) struct Inbox<O: Owner> {
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

    /// Pushes a node, unless it is queued already. If the inbox is closed the node is not queued any more,
    /// and this is false.
    pub(crate) fn push(&self, node: &NodeRef<O>) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        !node.link.queue(head) || self.push_queued(node.clone(), head, || ()).is_ok()
    }

    /// Pushes a node that only the caller knows. Gives it back if the inbox is closed. Calls `met`
    /// each time that another thread was at the inbox.
    pub(crate) fn push_new(&self, node: NodeRef<O>, met: impl Fn()) -> Result<(), NodeRef<O>> {
        let head = self.head.load(Ordering::Relaxed);
        node.link.queue_new(head);
        self.push_queued(node, head, met)
    }

    /// Pushes a node that the caller has queued before `head`.
    fn push_queued(
        &self,
        node: NodeRef<O>,
        mut head: *mut Header<O>,
        met: impl Fn(),
    ) -> Result<(), NodeRef<O>> {
        loop {
            if head == closed() {
                // The look that found this was a relaxed one. Nothing comes after CLOSED, so that this
                // one finds it too, and who is refused sees what the closer did.
                let again = self.head.load(Ordering::Acquire);
                debug_assert!(again == closed());
                // As a drainer does: who found it queued relies on what the caller does with it now.
                node.link.take();
                return Err(node);
            }
            match self.head.compare_exchange(
                head,
                node.as_ptr().as_ptr(),
                // Release: the drainer sees the node and its link.
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // The inbox owns the reference now.
                    node.into_raw();
                    return Ok(());
                }
                Err(now) => {
                    head = now;
                    node.link.relink(head);
                    met();
                }
            }
        }
    }

    /// Takes all that is there. For whoever holds the shard's lock.
    ///
    /// Whoever pushes after this sees what the caller did before it: that is why an empty inbox is taken, too,
    /// and not just looked at.
    pub(crate) fn take(&self) -> Batch<O> {
        // Only a closer makes the head CLOSED, and it holds the lock that we hold.
        if self.head.load(Ordering::Acquire) == closed() {
            return Batch::empty();
        }
        Batch::of(self.head.swap(null_mut(), Ordering::AcqRel))
    }

    /// Takes all that is there, and lets nothing in any more. For whoever holds the shard's lock.
    pub(crate) fn close(&self) -> Batch<O> {
        let head = self.head.swap(closed(), Ordering::AcqRel);
        Batch::of(if head == closed() { null_mut() } else { head })
    }
}

/// A list of nodes taken from an inbox, newest first.
pub(crate) struct Batch<O: Owner> {
    head: *mut Header<O>,
}

// SAFETY: the list owns its references, which are Send, and nobody else follows its links.
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
        // The link is the only way to the next node, and a read of it misses the cache. But a thread that
        // arms many timers takes their nodes in the order of memory. So the node `AHEAD` steps on is
        // likely at `AHEAD` times the distance from this node to the next.
        let stride = self.head.addr().wrapping_sub(ptr.addr().get());
        prefetch(self.head.wrapping_byte_add(stride.wrapping_mul(AHEAD)), 1);
        Some(node)
    }
}

impl<O: Owner> Drop for Batch<O> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
