//! One timer: a reference-counted node, one allocation, with its payload inline.
//!
//! Who may touch what:
//!
//! | field | written by |
//! |---|---|
//! | `claim` | anybody, by the transitions of [`ClaimWord`] |
//! | `link` | whoever gives the shard news of the node, and the drainer (see `inbox.rs`) |
//! | `location` | the carrier; under the home's lock where it is a slot. Where it is none, the owner of a sleep that has fired spoils when it was taken |
//! | `wait` | who changes the deadline |
//! | `refs` | everybody; each [`NodeRef`] is one |
//! | payload | who won the claim that allows it |
//!
//! A header is 40 bytes. With a sleep's waker, or with a callback that captures 16 bytes and its wait, that is
//! one cache line. What is larger [may begin anywhere](pool) on one.

use std::{alloc::Layout, marker::PhantomData, ops::Deref, ptr::NonNull};

use crate::{
    callback::Flow,
    claim::{Claim, ClaimWord, Outcome},
    extras::{Extras, coalesced},
    home::Home,
    inbox::Link,
    owner::Owner,
    pool, prefetch,
    sync::{AtomicU32, Ordering},
    taken::Taken,
    type_name::TypeName,
    wait::Wait,
};

/// Where a node is carried.
///
/// In 32 bits: a slot, if the highest is not set; otherwise whether it is in a deque, and in 30 bits when it was
/// [taken](Taken) from its store, which outlives its stay in the deque.
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
    /// Set where the node is in no slot.
    const NONE: u32 = 1 << 31;
    /// Set beside that where it is in a deque.
    const CARRIED: u32 = 1 << Taken::BITS;
    /// When it was taken is not to be looked at: it never was, or is no matter any more. The lowest bit does for that, by
    /// which it is [one of](Taken::is_one_of) no moments.
    const SPOILED: u32 = 1;
    /// The largest slot that a store may hand out.
    pub(crate) const MAX_SLOT: u32 = Self::NONE - 1;

    #[inline]
    fn pack(self) -> u32 {
        match self {
            Location::None => Self::NONE | Self::SPOILED,
            Location::Deque => Self::NONE | Self::CARRIED | Self::SPOILED,
            Location::Slot(slot) => slot,
        }
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        if word & Self::NONE == 0 {
            Location::Slot(word)
        } else if word & Self::CARRIED == 0 {
            Location::None
        } else {
            Location::Deque
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
    /// or ran it for the last time and it recurs. Nothing, if there is nothing to be done.
    pub(crate) end: Option<unsafe fn(NonNull<Header<O>>)>,
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
    /// Whether the node stands in an inbox, and what follows it there.
    pub(crate) link: Link<O>,
    pub(crate) vtable: &'static VTable<O>,
    pub(crate) home: Home<O>,
    refs: AtomicU32,
    location: AtomicU32,
}

impl<O: Owner> Header<O> {
    #[inline]
    pub(crate) fn new(vtable: &'static VTable<O>, home: Home<O>, claim: Claim) -> Self {
        Self {
            claim: ClaimWord::new(claim),
            link: Link::new(),
            vtable,
            home,
            refs: AtomicU32::new(1),
            location: AtomicU32::new(Location::None.pack()),
        }
    }

    #[inline]
    pub(crate) fn location(&self) -> Location {
        Location::unpack(self.location.load(Ordering::Acquire))
    }

    /// For the carrier alone.
    #[inline]
    pub(crate) fn set_location(&self, location: Location) {
        self.location.store(location.pack(), Ordering::Release);
    }

    /// It is in a deque from now on, being due, for the carrier.
    #[inline]
    pub(crate) fn set_taken(&self, taken: Taken) {
        let word = Location::NONE | Location::CARRIED | taken.bits();
        self.location.store(word, Ordering::Release);
    }

    /// It is in no deque any more, for the carrier; when it was taken is not forgotten. Not one step, which it need
    /// not be: until the store here nobody else makes a slot of it. Who spoils it in between, which takes a second
    /// carrier, has done that for nothing.
    #[inline]
    pub(crate) fn set_let_go(&self) {
        let word = self.location.load(Ordering::Relaxed) & !Location::CARRIED;
        self.location.store(word, Ordering::Release);
    }

    /// When it was taken from its store, for the carrier.
    #[inline]
    pub(crate) fn taken(&self) -> Taken {
        Taken::from_bits(self.location.load(Ordering::Relaxed))
    }

    /// When it was taken from its store, if that is one of `1 << bits` moments, one at least; and makes that none to be
    /// looked at if `wanted` says so.
    ///
    /// For the owner of a sleep, whom `wanted` tells that it has fired. As a rule nobody carries it then. But where it
    /// was moved while it was about to fire, old news may have brought it back into the store by then, whence a second
    /// carrier takes it, or has. A slot is left alone, and so is what changes meanwhile.
    #[inline]
    pub(crate) fn sample(&self, bits: u32, wanted: impl FnOnce() -> bool) -> Option<Taken> {
        let word = self.location.load(Ordering::Relaxed);
        let taken = Taken::from_bits(word);
        if word & Location::NONE == 0 || !taken.is_one_of(bits.max(1)) || !wanted() {
            return None;
        }
        // The word is the carrier's as before, and who acquires it acquires what the carrier did: this is a
        // read-modify-write.
        let spoiled = self.location.compare_exchange(
            word,
            word | Location::SPOILED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        spoiled.is_ok().then_some(taken)
    }

    #[inline]
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

/// A node with its payload. Those of callbacks, which alone can be refreshed, have their wait in between.
#[repr(C)]
pub(crate) struct Node<O: Owner, P, W = Wait> {
    pub(crate) header: Header<O>,
    /// How long the present wait is (what `refresh` waits for again, a recurring timer's period),
    /// and when it began. Follows the claim word without being part of it.
    pub(crate) wait: W,
    pub(crate) payload: P,
}

/// The beginning of a callback's node, whatever its payload.
#[repr(C)]
struct Waiting<O: Owner> {
    header: Header<O>,
    wait: Wait,
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
    /// Puts a node on the heap: what `make` makes, which does not panic.
    ///
    /// It is called when there is the memory, so that the node is written there, and not moved.
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

    /// The same, and a second reference, for who carries the node: together they cost no more than one.
    #[inline]
    pub(crate) fn pair<P: Send, W: Send>(make: impl FnOnce() -> Node<O, P, W>) -> (Self, Self) {
        let node = Self::new(|| {
            let mut node = make();
            node.header.refs = AtomicU32::new(2);
            node
        });
        // SAFETY: the count says that there is one more.
        let carried = unsafe { Self::from_raw(node.ptr) };
        (node, carried)
    }

    /// Frees what [`NodeRef::new`] made.
    ///
    /// # Safety
    ///
    /// `ptr` is a `Node<O, P, W>` of [`NodeRef::new`], and nobody refers to it any more.
    pub(crate) unsafe fn free<P, W>(ptr: NonNull<Header<O>>) {
        let node = ptr.cast::<Node<O, P, W>>();
        // SAFETY: by contract the caller is alone with a live node of this type, which `new` allocated by
        // this layout.
        unsafe {
            node.drop_in_place();
            pool::dealloc(node.cast(), Layout::new::<Node<O, P, W>>());
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Header<O>> {
        self.ptr
    }

    /// Prefetches the header, which is cold after a long wait.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let at = self.ptr.as_ptr();
        prefetch::prefetch(at, 1);
        // A node that is not a whole number of lines may have its header on two.
        prefetch::prefetch(at.wrapping_byte_add(pool::LINE - 1), 1);
    }

    /// What tells this node from all others that live.
    pub(crate) fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    /// See [`Node::wait`].
    ///
    /// # Panics
    ///
    /// If the node is a sleep's.
    #[inline]
    pub(crate) fn wait(&self) -> &Wait {
        assert!(self.vtable.kind != Kind::Sleep, "a sleep has no wait");
        // SAFETY: it is no sleep.
        unsafe { self.wait_of_callback() }
    }

    /// The same where that need not be asked.
    ///
    /// # Safety
    ///
    /// The node is not a sleep's.
    #[inline]
    pub(crate) unsafe fn wait_of_callback(&self) -> &Wait {
        // SAFETY: the node lives, and all nodes but sleeps begin so: both types are laid out in order.
        unsafe { &self.ptr.cast::<Waiting<O>>().as_ref().wait }
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

    /// Gives up `other`, and returns true if the caller is alone with the node from then on:
    /// `other` refers to this node as well, and there is no third reference. Then nobody else gets
    /// one before the caller makes it, and all that former holders did comes before this.
    #[inline]
    pub(crate) fn unite(&mut self, other: Self) -> bool {
        // The count speaks of this node alone, so a reference to another node proves nothing. It is
        // dropped as any.
        let same = self.ptr == other.ptr;
        // A holder of both of two references is alone, as the holder of the last one is (see
        // `drop`).
        let alone = same && looks_for_the_last() && self.refs.load(Ordering::Acquire) == 2;
        if alone {
            self.refs.store(1, Ordering::Relaxed);
            std::mem::forget(other);
        }
        alone
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
    #[inline]
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
    #[inline]
    fn drop(&mut self) {
        // Who sees that it has the last reference is alone: a new one is made from another alone. So
        // there is nobody to be told of its end.
        let is_last = looks_for_the_last() && self.refs.load(Ordering::Acquire) == 1;
        if is_last || self.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: this was the last reference, and the table is the node's own.
            unsafe { (self.vtable.free)(self.ptr) }
        }
    }
}

#[inline(always)]
fn looks_for_the_last() -> bool {
    #[cfg(loom)]
    return model::LOOKS_FOR_THE_LAST.get();
    #[cfg(not(loom))]
    true
}

/// What a model may choose.
#[cfg(loom)]
pub mod model {
    std::thread_local! {
        /// Whether who drops a reference looks first whether it is the last. In loom a look has as many answers as there
        /// are former counts, which makes three executions of each: so only models of just that have it.
        /// (loom runs all threads of a model on one of the system's.)
        pub static LOOKS_FOR_THE_LAST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        /// Whether who arms a timer from elsewhere looks whether an early enough deadline is published already. Loom takes a
        /// thread's write behind its own look for one that depends on nothing else, and leaves out what others did before:
        /// so only models of just that have it.
        pub static LOOKS_AT_THE_DEADLINE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{shard::Shard, sync::Arc, waker::WakerSlot};

    struct Nobody;

    impl Owner for Nobody {
        fn wake(&self) {}
        fn is_current(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_sleep_and_a_small_callback_are_a_cache_line() {
        assert_eq!(size_of::<Header<Nobody>>(), 40);
        assert!(size_of::<Node<Nobody, WakerSlot, ()>>() <= 64);
        assert!(size_of::<Node<Nobody, [u64; 2]>>() <= 64);
    }

    #[test]
    fn a_location_is_one_of_three_whenever_it_was_taken() {
        let owner = Arc::new(Shard::new(Nobody));
        let node = crate::timer::Timer::once(&owner, crate::NEVER, 0, || ());
        let node = node.node();
        for slot in [0, 7, Location::MAX_SLOT] {
            node.set_location(Location::Slot(slot));
            assert_eq!(node.location(), Location::Slot(slot));
        }
        for now in [0, 1 << 40, u64::MAX] {
            node.set_taken(Taken::at(now));
            assert_eq!(node.location(), Location::Deque);
            assert_eq!(node.taken(), Taken::at(now));
            node.set_let_go();
            assert_eq!(node.location(), Location::None);
            assert_eq!(node.taken(), Taken::at(now));
        }
        node.set_location(Location::None);
        assert_eq!(node.location(), Location::None);
        owner.close();
    }

    #[test]
    fn only_what_was_taken_and_is_no_slot_is_in_a_sample() {
        let owner = Arc::new(Shard::new(Nobody));
        let timer = crate::timer::Timer::once(&owner, crate::NEVER, 0, || ());
        let node = timer.node();
        let wanted = || true;
        for location in [Location::None, Location::Deque, Location::Slot(1 << 8)] {
            node.set_location(location);
            assert_eq!(node.sample(1, wanted), None);
            assert_eq!(node.location(), location);
        }
        let taken = Taken::at(1 << 20);
        for let_go in [false, true] {
            node.set_taken(taken);
            if let_go {
                node.set_let_go();
            }
            let location = node.location();
            assert_eq!(node.sample(0, || false), None);
            assert_eq!(node.sample(0, wanted), Some(taken));
            assert_eq!(node.sample(0, wanted), None, "it is told once");
            assert_eq!(node.location(), location);
        }
        // Taken to another place meanwhile: that is not spoiled.
        node.set_taken(taken);
        let moves = || {
            node.set_location(Location::Slot(1 << 8));
            true
        };
        assert_eq!(node.sample(1, moves), None);
        assert_eq!(node.location(), Location::Slot(1 << 8));
        node.set_location(Location::None);
        owner.close();
    }

    /// A wrong answer frees a node that is in use: the caller writes the count, and takes the
    /// waker, unwatched.
    #[test]
    fn references_to_two_nodes_do_not_unite() {
        let owner = Arc::new(Shard::new(Nobody));
        let timers = [1, 2].map(|at| crate::timer::Timer::once(&owner, at, 0, || ()));
        let refs = || {
            timers
                .each_ref()
                .map(|it| it.node().refs.load(Ordering::Relaxed))
        };
        let [mut one, other] = timers.each_ref().map(|it| it.node().clone());
        assert_eq!(refs(), [3, 3]);
        assert!(!one.unite(other));
        assert_eq!(refs(), [3, 2], "the other was given up, and no more");
        drop(one);
        // Where each has two references, which would be enough of one node.
        let [mut one, other] = timers.each_ref().map(|it| {
            it.cancel();
            it.node().clone()
        });
        assert_eq!(refs(), [2, 2]);
        assert!(!one.unite(other));
        assert_eq!(refs(), [2, 1]);
        let other = one.clone();
        drop(timers);
        assert!(one.unite(other), "both are of one node");
        drop(one);
        owner.close();
    }

    #[test]
    fn a_wait_is_found_whatever_the_payload() {
        #[repr(align(32))]
        struct Wide(#[expect(dead_code, reason = "there for its alignment")] u8);
        assert_eq!(
            std::mem::offset_of!(Node<Nobody, Wide>, wait),
            std::mem::offset_of!(Waiting<Nobody>, wait)
        );
    }
}
