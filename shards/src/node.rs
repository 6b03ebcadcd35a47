//! One timer: a reference-counted node, one allocation, with its payload inline.
//!
//! Who may touch what:
//!
//! | field | written by |
//! |---|---|
//! | `claim` | anybody, by the transitions of [`ClaimWord`] |
//! | `queued`, `next` | whoever gives the shard news of the node, and the drainer (see `inbox.rs`) |
//! | `location` | the carrier alone; under the home's lock where it is a slot |
//! | `wait` | who changes the deadline |
//! | `refs` | everybody; each [`NodeRef`] is one |
//! | payload | who won the claim that allows it |

use std::{alloc::Layout, marker::PhantomData, ops::Deref, ptr::NonNull};

use crate::{
    callback::Flow,
    claim::{Claim, ClaimWord, Outcome},
    extras::{Extras, coalesced},
    owner::Owner,
    shard::Shard,
    sync::{Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, alloc, dealloc, fence},
    type_name::TypeName,
};

/// Where a node is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In an inbox on its way home, or nowhere because it is over.
    None,
    /// In a deque, or in the hands of who took it from there.
    Deque,
    /// In its home's store.
    Slot(u32),
}

impl Location {
    const NONE: u32 = u32::MAX;
    const DEQUE: u32 = u32::MAX - 1;
    /// The largest slot that a store may hand out.
    pub(crate) const MAX_SLOT: u32 = u32::MAX - 2;

    fn pack(self) -> u32 {
        match self {
            Location::None => Self::NONE,
            Location::Deque => Self::DEQUE,
            Location::Slot(slot) => slot,
        }
    }

    fn unpack(word: u32) -> Self {
        match word {
            Self::NONE => Location::None,
            Self::DEQUE => Location::Deque,
            slot => Location::Slot(slot),
        }
    }
}

/// What sort of thing a timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A callback that runs once.
    Once,
    /// A callback that runs again and again.
    Recurring,
    /// A sleep: wakes a task.
    Sleep,
}

/// Where a node has its options.
pub(crate) type FindExtras<O> = unsafe fn(NonNull<Header<O>>) -> NonNull<Extras<O>>;

/// How a node's payload is told how the timer ended.
pub(crate) type Tell<O> = unsafe fn(NonNull<Header<O>>, Outcome);

/// What a node does with its payload; one table for each type of payload.
///
/// # Safety of the functions
///
/// The pointer is to a live node that was made with this table.
pub(crate) struct VTable<O: Owner> {
    pub(crate) kind: Kind,
    /// The type of the callback.
    pub(crate) name: TypeName,
    /// Runs the payload. The caller won the claim to Running; a `Once` is used up by it.
    pub(crate) run: unsafe fn(NonNull<Header<O>>) -> Flow,
    /// Lets go of the payload, or wakes it. The caller won the claim to end it without running it,
    /// or ran it for the last time and it recurs.
    pub(crate) end: unsafe fn(NonNull<Header<O>>),
    /// Runs the payload in place of `end`, if it has to be told how the timer ended where that was not
    /// by running. That uses it up.
    pub(crate) tell: Option<Tell<O>>,
    /// The options of the node, if it has any.
    pub(crate) extras: Option<FindExtras<O>>,
    /// Frees the node, whose payload is gone. The caller held the last reference.
    pub(crate) free: unsafe fn(NonNull<Header<O>>),
}

/// What all nodes have, whatever they carry.
pub(crate) struct Header<O: Owner> {
    pub(crate) claim: ClaimWord,
    /// The link to the next node of an inbox, valid while `queued`.
    pub(crate) next: AtomicPtr<Header<O>>,
    pub(crate) vtable: &'static VTable<O>,
    pub(crate) home: Arc<Shard<O>>,
    /// How long the present wait is, in ns: what `refresh` waits for again, a recurring timer's
    /// period. Follows the claim word without being part of it.
    pub(crate) wait: AtomicU64,
    refs: AtomicU32,
    location: AtomicU32,
    pub(crate) queued: AtomicBool,
}

impl<O: Owner> Header<O> {
    pub(crate) fn new(
        vtable: &'static VTable<O>,
        home: Arc<Shard<O>>,
        claim: Claim,
        wait: u64,
    ) -> Self {
        Self {
            claim: ClaimWord::new(claim),
            next: AtomicPtr::new(std::ptr::null_mut()),
            vtable,
            home,
            wait: AtomicU64::new(wait),
            refs: AtomicU32::new(1),
            location: AtomicU32::new(Location::NONE),
            queued: AtomicBool::new(false),
        }
    }

    pub(crate) fn location(&self) -> Location {
        Location::unpack(self.location.load(Ordering::Acquire))
    }

    /// For the carrier alone.
    pub(crate) fn set_location(&self, location: Location) {
        self.location.store(location.pack(), Ordering::Release);
    }

    pub(crate) fn recurs(&self) -> bool {
        self.vtable.kind == Kind::Recurring
    }

    /// Whether the payload has to be told how the timer ended, if not by running.
    #[inline]
    pub(crate) fn tells(&self) -> bool {
        self.vtable.tell.is_some()
    }

    /// Whether it runs for the last time, or is about to be told that it has ended.
    pub(crate) fn is_ending(&self) -> bool {
        match self.claim.load() {
            Claim::Stopping { .. } => true,
            Claim::Running(_) => !self.recurs(),
            _ => false,
        }
    }
}

/// A node with its payload.
#[repr(C)]
pub(crate) struct Node<O: Owner, P> {
    pub(crate) header: Header<O>,
    pub(crate) payload: P,
}

/// One reference to a node of any payload.
pub(crate) struct NodeRef<O: Owner> {
    ptr: NonNull<Header<O>>,
    _owns: PhantomData<Header<O>>,
}

// SAFETY: a node's payload is Send (its constructors ask for it), its header is made of atomics
// and Sync things, and what is not is touched only by who won the claim to it.
unsafe impl<O: Owner> Send for NodeRef<O> {}
// SAFETY: as above; all that a shared reference allows is atomic.
unsafe impl<O: Owner> Sync for NodeRef<O> {}

impl<O: Owner> NodeRef<O> {
    /// Puts a node on the heap.
    pub(crate) fn new<P: Send>(node: Node<O, P>) -> Self {
        let layout = Layout::new::<Node<O, P>>();
        // SAFETY: the layout is not empty: the header alone has a size.
        let raw = unsafe { alloc(layout) }.cast::<Node<O, P>>();
        let Some(ptr) = NonNull::new(raw) else {
            std::alloc::handle_alloc_error(layout)
        };
        // SAFETY: fresh memory of the right layout.
        unsafe { ptr.write(node) };
        Self {
            ptr: ptr.cast(),
            _owns: PhantomData,
        }
    }

    /// Frees what [`NodeRef::new`] made.
    ///
    /// # Safety
    ///
    /// `ptr` is a `Node<O, P>` of [`NodeRef::new`], and nobody refers to it any more.
    pub(crate) unsafe fn free<P>(ptr: NonNull<Header<O>>) {
        let node = ptr.cast::<Node<O, P>>();
        // SAFETY: by contract the caller is alone with a live node of this type.
        unsafe {
            node.drop_in_place();
            dealloc(node.as_ptr().cast(), Layout::new::<Node<O, P>>());
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Header<O>> {
        self.ptr
    }

    /// What tells this node from all others that live.
    pub(crate) fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    #[inline]
    pub(crate) fn extras(&self) -> Option<&Extras<O>> {
        // SAFETY: the node lives, the table is its own, and extras are only ever shared.
        self.vtable
            .extras
            .map(|extras| unsafe { extras(self.ptr).as_ref() })
    }

    /// The key of a deadline in the store: the deadline, but for a timer that may be late.
    #[inline]
    pub(crate) fn key(&self, deadline: u64) -> u64 {
        self.extras()
            .map_or(deadline, |extras| coalesced(deadline, extras.tolerance))
    }

    pub(crate) fn into_raw(self) -> *mut Header<O> {
        let ptr = self.ptr.as_ptr();
        std::mem::forget(self);
        ptr
    }

    /// # Safety
    ///
    /// `ptr` is from [`NodeRef::into_raw`], and its reference is given up by this.
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
        // SAFETY: a reference keeps the node alive, and a header is only ever shared.
        unsafe { self.ptr.as_ref() }
    }
}

impl<O: Owner> Clone for NodeRef<O> {
    fn clone(&self) -> Self {
        // Relaxed: a new reference is made from one that keeps the node alive. As in Arc, what would
        // overflow the count (by futures of `Timer::ended` that were forgotten) ends the process while
        // there is room left for all threads that may be here.
        if self.refs.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
        Self {
            ptr: self.ptr,
            _owns: PhantomData,
        }
    }
}

impl<O: Owner> Drop for NodeRef<O> {
    fn drop(&mut self) {
        if self.refs.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last reference, and the table is the node's own.
            unsafe { (self.vtable.free)(self.ptr) }
        }
    }
}
