//! The node of one timer: one allocation with a reference count, a header and the payload inline.
//!
//! Each field may be written by these threads:
//!
//! | field | written by |
//! |---|---|
//! | `claim` | any thread, by the transitions of [`ClaimWord`](claim::ClaimWord) |
//! | `link` | threads that push into the inbox or drain it (see `shard/inbox.rs`) |
//! | `location` | the holder, and for a slot under the shard's lock; also [`Header::sample`] |
//! | `wait` | a thread that changes the deadline |
//! | `refs` | any thread; each [`NodeRef`] is one reference. The tolerance is set once |
//! | payload | the thread that won the claim which gives it the payload |
//!
//! A header has 40 bytes. Together with a sleep's waker, or with a wait and a callback that
//! captures 16 bytes, it fills one cache line. A larger node [may begin anywhere](tourbillon_pool)
//! on a line.
//!
//! The rules for `claim`, `location` and the references, with their proofs, are in the sections
//! "The claim word", "One holder" and "Lifetimes" of `PROTOCOLS.md`.

use std::{alloc::Layout, marker::PhantomData, ops::Deref, ptr::NonNull};

use tourbillon_pool as pool;
use tourbillon_sync::prefetch;

use crate::{
    answer::Kind,
    node::{extras::Extras, header::Header, refs::Refs, wait::Wait},
    owner::Owner,
};

pub(crate) mod callback;
pub(crate) mod claim;
pub(crate) mod ending;
pub(crate) mod extras;
pub(crate) mod header;
pub(crate) mod link;
pub(crate) mod location;
mod notice;
pub(crate) mod refs;
pub(crate) mod running;
pub(crate) mod sleeper;
pub(crate) mod state;
pub(crate) mod taken;
pub(crate) mod wait;
pub(crate) mod waker;

/// Header and payload of a timer. Callbacks can be refreshed, so their nodes have a [`Wait`]
/// between the two. A sleep has `()` there.
#[repr(C)]
pub(crate) struct Node<O: Owner, P, W = Wait> {
    pub(crate) header: Header<O>,
    /// Length of the present wait, and when it began. `refresh` waits for the same length again;
    /// for a recurring timer it is the period. It changes just before or after the claim word, not
    /// in the same step.
    pub(crate) wait: W,
    pub(crate) payload: P,
}

/// Common beginning of all callbacks' nodes, for any payload.
#[repr(C)]
struct Waiting<O: Owner> {
    header: Header<O>,
    wait: Wait,
}

/// Counted reference to a node of any payload: its address.
#[repr(transparent)]
pub(crate) struct NodeRef<O: Owner> {
    ptr: NonNull<Header<O>>,
    _owns: PhantomData<Header<O>>,
}

// SAFETY: a node's payload is Send, as its constructors require. Its header consists of atomics and
// Sync values. All else is touched only by the thread that won the claim to it.
unsafe impl<O: Owner> Send for NodeRef<O> {}
// SAFETY: as above; a shared reference allows atomic operations only.
unsafe impl<O: Owner> Sync for NodeRef<O> {}

/// Memory of a node whose value is dropped, or being dropped. Frees it when dropped.
struct Memory<T>(NonNull<T>);

impl<T> Drop for Memory<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `NodeRef::new` allocated it with this layout, and only `NodeRef::free` makes this
        // value, for a node that it does not use after that.
        unsafe { pool::dealloc(self.0.cast(), Layout::new::<T>()) };
    }
}

impl<O: Owner> NodeRef<O> {
    /// Allocates a node and fills it with the result of `make`, which must not panic.
    ///
    /// `make` is called after the allocation, so that the compiler can construct the node in place.
    #[inline]
    pub(crate) fn new<P: Send, W: Send>(make: impl FnOnce() -> Node<O, P, W>) -> Self {
        let layout = Layout::new::<Node<O, P, W>>();
        // SAFETY: the layout is not empty: the header alone has a size.
        let ptr = unsafe { pool::alloc(layout) }.cast::<Node<O, P, W>>();
        // SAFETY: fresh memory of the right layout.
        unsafe { ptr.write(make()) };
        Self {
            ptr: ptr.cast(),
            _owns: PhantomData,
        }
    }

    /// Allocates a node like [`NodeRef::new`] and returns two references, the second one for the
    /// holder. This costs no atomic operation for the second.
    #[inline]
    pub(crate) fn pair<P: Send, W: Send>(make: impl FnOnce() -> Node<O, P, W>) -> (Self, Self) {
        let node = Self::new(|| {
            let mut node = make();
            node.header.refs = Refs::new(2);
            node
        });
        // SAFETY: the count is 2, and this is the second reference.
        let held = unsafe { Self::from_raw(node.ptr) };
        (node, held)
    }

    /// Frees a node that [`NodeRef::new`] made.
    ///
    /// # Safety
    ///
    /// `ptr` is a `Node<O, P, W>` from [`NodeRef::new`], and no reference to it is left.
    pub(crate) unsafe fn free<P, W>(ptr: NonNull<Header<O>>) {
        let node = ptr.cast::<Node<O, P, W>>();
        // A local variable, so that a destructor that panics does not leak the memory.
        let _memory = Memory(node);
        // SAFETY: by contract the caller alone uses this live node, which has this type.
        unsafe { node.drop_in_place() };
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Header<O>> {
        self.ptr
    }

    /// Prefetches the header, which is not in the cache after a long wait.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let at = self.ptr.as_ptr();
        prefetch(at, 1);
        // A node whose size is no multiple of a line may begin anywhere, so its header may be on
        // two lines.
        prefetch(at.wrapping_byte_add(pool::LINE - 1), 1);
    }

    /// Returns the address of the node, which identifies it among all live nodes.
    pub(crate) fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    /// Returns [`Node::wait`].
    ///
    /// # Panics
    ///
    /// Panics if the node is a sleep's.
    #[inline]
    pub(crate) fn wait(&self) -> &Wait {
        assert!(self.vtable.kind != Kind::Sleep, "a sleep has no wait");
        // SAFETY: the assertion holds.
        unsafe { self.wait_of_callback() }
    }

    /// Returns [`Node::wait`] without a check of the kind.
    ///
    /// # Safety
    ///
    /// The node is not a sleep's.
    #[inline]
    pub(crate) unsafe fn wait_of_callback(&self) -> &Wait {
        // SAFETY: the node is alive. By contract it is a callback's, and those begin as `Waiting`:
        // both types are `repr(C)`.
        unsafe { &self.ptr.cast::<Waiting<O>>().as_ref().wait }
    }

    /// Returns the options of the node, if it has any.
    #[inline]
    pub(crate) fn extras(&self) -> Option<&Extras> {
        // SAFETY: the node is alive, the table is its own, and extras are only shared.
        self.vtable
            .extras
            .map(|extras| unsafe { extras(self.ptr).as_ref() })
    }

    /// Gives up `other`. Returns true if both references are to one node and no third one exists.
    ///
    /// Then the caller is alone with the node until it makes a new reference, and all that former
    /// holders of references did happens before the return. See "Lifetimes" in `PROTOCOLS.md`.
    #[inline]
    pub(crate) fn unite(&mut self, other: Self) -> bool {
        // The count is of this node only, so a reference to another node proves nothing. In that
        // case `other` is simply dropped.
        let same = self.ptr == other.ptr;
        // New references are made only from references, so a thread that has both of two is alone,
        // like the thread that has the last one in `drop`.
        let alone = same && looks_for_the_last() && self.refs.unite();
        if alone {
            std::mem::forget(other);
        }
        alone
    }

    /// Turns the reference into a pointer. The reference stays counted.
    pub(crate) fn into_raw(self) -> NonNull<Header<O>> {
        let ptr = self.ptr;
        std::mem::forget(self);
        ptr
    }

    /// Turns a pointer back into the reference.
    ///
    /// # Safety
    ///
    /// `ptr` comes from [`NodeRef::into_raw`]. The caller does not use it again, or does not drop the
    /// reference that this returns.
    pub(crate) unsafe fn from_raw(ptr: NonNull<Header<O>>) -> Self {
        Self {
            ptr,
            _owns: PhantomData,
        }
    }
}

impl<O: Owner> Deref for NodeRef<O> {
    type Target = Header<O>;

    #[inline]
    fn deref(&self) -> &Header<O> {
        // SAFETY: a reference keeps the node alive, and a header is only shared.
        unsafe { self.ptr.as_ref() }
    }
}

impl<O: Owner> Clone for NodeRef<O> {
    #[inline]
    fn clone(&self) -> Self {
        self.refs.add();
        Self {
            ptr: self.ptr,
            _owns: PhantomData,
        }
    }
}

impl<O: Owner> Drop for NodeRef<O> {
    #[inline]
    fn drop(&mut self) {
        // A thread that reads 1 has the last reference: new ones are made only from references. So
        // no other thread has to see the count fall, and the read-modify-write can be left out.
        let is_last = looks_for_the_last() && self.refs.is_one();
        if is_last || self.refs.sub() {
            // SAFETY: this was the last reference, and the table is the node's own.
            unsafe { (self.vtable.free)(self.ptr) }
        }
    }
}

/// Returns whether a thread that drops a reference first loads the count, to skip the
/// read-modify-write for the last one. Always true outside of loom.
#[inline(always)]
fn looks_for_the_last() -> bool {
    #[cfg(loom)]
    return model::LOOKS_FOR_THE_LAST.get();
    #[cfg(not(loom))]
    true
}

/// Switches for loom models.
#[cfg(loom)]
pub mod model {
    std::thread_local! {
        /// Whether a thread that drops a reference first loads the count. In loom this load may
        /// return each former count, which triples the number of executions. So only the models of
        /// this step switch it on. (loom runs all threads of a model on one OS thread.)
        pub static LOOKS_FOR_THE_LAST: std::cell::Cell<bool> =
            const { std::cell::Cell::new(false) };
        /// Whether a remote thread that arms a timer first loads the published deadline, to see
        /// whether it is early enough already. loom treats a write after such a load as independent
        /// of the load, and skips interleavings. So only the models of this step switch it on.
        pub static LOOKS_AT_THE_DEADLINE: std::cell::Cell<bool> =
            const { std::cell::Cell::new(false) };
        /// How many updates a remote thread reads while it holds the lock. With one, models reach
        /// the backlog. A model in which a batch has to hold all updates sets a larger number.
        pub static BATCH: std::cell::Cell<usize> = const { std::cell::Cell::new(1) };
        /// How many unread cancellations a canceller leaves alone.
        pub static GARBAGE_FLOOR: std::cell::Cell<usize> = const { std::cell::Cell::new(1) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
