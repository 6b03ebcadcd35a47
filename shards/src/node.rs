//! The node of one timer: one allocation with a reference count, a header and the payload inline.
//!
//! Each field may be written by these threads:
//!
//! | field | written by |
//! |---|---|
//! | `claim` | any thread, by the transitions of [`ClaimWord`] |
//! | `link` | threads that push into the inbox or drain it (see `inbox.rs`) |
//! | `location` | the holder, and for a slot under the shard's lock; also [`Header::sample`] |
//! | `wait` | a thread that changes the deadline |
//! | `refs` | any thread; each [`NodeRef`] is one reference |
//! | payload | the thread that won the claim which gives it the payload |
//!
//! A header has 40 bytes. Together with a sleep's waker, or with a wait and a callback that
//! captures 16 bytes, it fills one cache line. A larger node [may begin anywhere](pool) on a line.
//!
//! The rules for `claim`, `location` and the references, with their proofs, are in the sections
//! "The claim word", "One carrier" and "Lifetimes" of `PROTOCOLS.md`. The code calls the holder of
//! a timer its carrier.

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

/// Place where a node is held. See "One carrier" in `PROTOCOLS.md`.
///
/// Packed into 32 bits. If the highest bit is clear, the word is a slot. Otherwise one bit says
/// whether the node is in a deque, and 30 bits hold the time at which it was [taken](Taken) from
/// its store. That time stays there after the node has left the deque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In no store and no deque: in an inbox on the way to its shard, not started, or over.
    None,
    /// In a deque, or held by the thread that took it from there.
    Deque,
    /// In this slot of its owning shard's store.
    Slot(u32),
}

impl Location {
    /// Set if the node is in no slot.
    const NONE: u32 = 1 << 31;
    /// Set in addition if the node is in a deque.
    const CARRIED: u32 = 1 << Taken::BITS;
    /// Set if the time of taking must not be used: it was never written, or was read already. It is
    /// the lowest bit of the time, so [`Taken::is_one_of`] never selects a spoiled time.
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

/// Kind of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A callback that runs once.
    Once,
    /// A callback that runs repeatedly.
    Recurring,
    /// A sleep, which wakes a task.
    Sleep,
}

/// Function that finds the options of a node.
pub(crate) type FindExtras<O> = unsafe fn(NonNull<Header<O>>) -> NonNull<Extras<O>>;

/// Function that calls a node's callback with the outcome of its timer.
pub(crate) type Tell<O> = unsafe fn(NonNull<Header<O>>, Outcome);

/// Functions of a node for its payload. There is one table per payload type.
///
/// # Safety of the functions
///
/// The pointer is to a live node that was made with this table.
pub(crate) struct VTable<O: Owner> {
    pub(crate) kind: Kind,
    /// Name of the callback type.
    pub(crate) name: TypeName,
    /// Runs the payload. The caller won the claim to Running. A `Once` payload is used up by this.
    pub(crate) run: unsafe fn(NonNull<Header<O>>) -> Flow,
    /// Drops the payload, or wakes the task. The caller won the claim to end the timer without a
    /// run, or ran a recurring timer for the last time. `None` if there is nothing to do.
    pub(crate) end: Option<unsafe fn(NonNull<Header<O>>)>,
    /// Replaces `end` for a callback that takes outcomes: calls it with the outcome of a timer that
    /// ended without a run. The payload is used up by this.
    pub(crate) tell: Option<Tell<O>>,
    /// Finds the options of the node, if it has any.
    pub(crate) extras: Option<FindExtras<O>>,
    /// Frees the node. Its payload is gone, and the caller held the last reference.
    pub(crate) free: unsafe fn(NonNull<Header<O>>),
}

/// Common part of all nodes.
pub(crate) struct Header<O: Owner> {
    pub(crate) claim: ClaimWord,
    /// Link of the inbox: whether the node is queued there, and which node follows.
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

    /// Sets the place of the node. Only for the holder.
    #[inline]
    pub(crate) fn set_location(&self, location: Location) {
        self.location.store(location.pack(), Ordering::Release);
    }

    /// Marks the node, which is due, as in a deque since `taken`. Only for the holder.
    #[inline]
    pub(crate) fn set_taken(&self, taken: Taken) {
        let word = Location::NONE | Location::CARRIED | taken.bits();
        self.location.store(word, Ordering::Release);
    }

    /// Marks the node as in no deque, and keeps the time of taking. Only for the holder.
    ///
    /// A load and a store suffice. Until the store, no other thread gives the node a slot. If a
    /// second holder exists, the owner of the sleep may spoil the time in between; the store then
    /// undoes that, which "One carrier" in `PROTOCOLS.md` allows.
    #[inline]
    pub(crate) fn set_let_go(&self) {
        let word = self.location.load(Ordering::Relaxed) & !Location::CARRIED;
        self.location.store(word, Ordering::Release);
    }

    /// Returns when the node was taken from its store. Only for the holder.
    #[inline]
    pub(crate) fn taken(&self) -> Taken {
        Taken::from_bits(self.location.load(Ordering::Relaxed))
    }

    /// Samples the time of taking: returns it for one of `1 << bits` timers (one of two if `bits`
    /// is 0), and then spoils it, so that it is counted once.
    ///
    /// Only for the owner of a sleep. `wanted` tells whether the sleep has fired. Usually the node
    /// has no holder then. But if the sleep was reset while it was about to fire, an old update may
    /// have put the node back into the store, and a second holder may have taken it. So a slot is
    /// left alone, and a word that changes meanwhile is not written. See "One carrier" in
    /// `PROTOCOLS.md`.
    #[inline]
    pub(crate) fn sample(&self, bits: u32, wanted: impl FnOnce() -> bool) -> Option<Taken> {
        let word = self.location.load(Ordering::Relaxed);
        let taken = Taken::from_bits(word);
        if word & Location::NONE == 0 || !taken.is_one_of(bits.max(1)) || !wanted() {
            return None;
        }
        // The exchange is a read-modify-write, so it continues the holder's release sequence: a
        // thread that acquires the new word also sees what the holder did.
        let spoiled = self.location.compare_exchange(
            word,
            word | Location::SPOILED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        spoiled.is_ok().then_some(taken)
    }

    /// Returns whether this is a recurring timer.
    #[inline]
    pub(crate) fn recurs(&self) -> bool {
        self.vtable.kind == Kind::Recurring
    }

    /// Returns whether the callback takes outcomes, that is also runs for `Cancelled` and
    /// `Shutdown`.
    #[inline]
    pub(crate) fn tells(&self) -> bool {
        self.vtable.tell.is_some()
    }

    /// Returns whether the timer runs for the last time, or ends when its callback has received the
    /// outcome.
    pub(crate) fn is_ending(&self) -> bool {
        match self.claim.load() {
            Claim::Stopping { .. } => true,
            Claim::Running(_) => !self.recurs(),
            _ => false,
        }
    }
}

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

/// Counted reference to a node of any payload.
pub(crate) struct NodeRef<O: Owner> {
    ptr: NonNull<Header<O>>,
    _owns: PhantomData<Header<O>>,
}

// SAFETY: a node's payload is Send, as its constructors require. Its header consists of atomics and
// Sync values. All else is touched only by the thread that won the claim to it.
unsafe impl<O: Owner> Send for NodeRef<O> {}
// SAFETY: as above; a shared reference allows atomic operations only.
unsafe impl<O: Owner> Sync for NodeRef<O> {}

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
            node.header.refs = AtomicU32::new(2);
            node
        });
        // SAFETY: the count is 2, and this is the second reference.
        let carried = unsafe { Self::from_raw(node.ptr) };
        (node, carried)
    }

    /// Frees a node that [`NodeRef::new`] made.
    ///
    /// # Safety
    ///
    /// `ptr` is a `Node<O, P, W>` from [`NodeRef::new`], and no reference to it is left.
    pub(crate) unsafe fn free<P, W>(ptr: NonNull<Header<O>>) {
        let node = ptr.cast::<Node<O, P, W>>();
        // SAFETY: by contract the caller alone uses this live node, which has this type and which
        // `new` allocated with this layout.
        unsafe {
            node.drop_in_place();
            pool::dealloc(node.cast(), Layout::new::<Node<O, P, W>>());
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Header<O>> {
        self.ptr
    }

    /// Prefetches the header, which is not in the cache after a long wait.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let at = self.ptr.as_ptr();
        prefetch::prefetch(at, 1);
        // A node whose size is no multiple of a line may begin anywhere, so its header may be on
        // two lines.
        prefetch::prefetch(at.wrapping_byte_add(pool::LINE - 1), 1);
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
    pub(crate) fn extras(&self) -> Option<&Extras<O>> {
        // SAFETY: the node is alive, the table is its own, and extras are only shared.
        self.vtable
            .extras
            .map(|extras| unsafe { extras(self.ptr).as_ref() })
    }

    /// Returns the key under which the store keeps the deadline: the deadline itself, or for a
    /// timer with a tolerance the moment to which it is [rounded](coalesced).
    #[inline]
    pub(crate) fn key(&self, deadline: u64) -> u64 {
        self.extras()
            .map_or(deadline, |extras| coalesced(deadline, extras.tolerance))
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
        let alone = same && looks_for_the_last() && self.refs.load(Ordering::Acquire) == 2;
        if alone {
            self.refs.store(1, Ordering::Relaxed);
            std::mem::forget(other);
        }
        alone
    }

    /// Turns the reference into a pointer. The reference stays counted.
    pub(crate) fn into_raw(self) -> *mut Header<O> {
        let ptr = self.ptr.as_ptr();
        std::mem::forget(self);
        ptr
    }

    /// Turns a pointer back into the reference.
    ///
    /// # Safety
    ///
    /// `ptr` comes from [`NodeRef::into_raw`], and the caller does not use it again.
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
        // Relaxed: the new reference is made from one that keeps the node alive. An overflow would
        // need billions of futures of `Timer::ended` that were forgotten. As in `Arc`, it aborts
        // the process halfway, which leaves room for all threads that may be here at the same time.
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
        // A thread that reads 1 has the last reference: new ones are made only from references. So
        // no other thread has to see the count fall, and the read-modify-write can be left out.
        let is_last = looks_for_the_last() && self.refs.load(Ordering::Acquire) == 1;
        if is_last || self.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
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
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{shard::Shard, sync::Arc, waker::WakerSlot};

    struct Loop;

    impl Owner for Loop {
        fn wake(&self) {}
        fn is_current(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_sleep_and_a_small_callback_fit_a_cache_line() {
        assert_eq!(size_of::<Header<Loop>>(), 40);
        assert!(size_of::<Node<Loop, WakerSlot, ()>>() <= 64);
        assert!(size_of::<Node<Loop, [u64; 2]>>() <= 64);
    }

    #[test]
    fn a_location_does_not_depend_on_the_time_of_taking() {
        let owner = Arc::new(Shard::new(Loop));
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
    fn only_taken_nodes_outside_of_slots_are_sampled() {
        let owner = Arc::new(Shard::new(Loop));
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
            assert_eq!(node.sample(0, wanted), None, "a time is returned once");
            assert_eq!(node.location(), location);
        }
        // The location changes meanwhile: the new one must not be spoiled.
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

    /// A wrong answer would free a node that is in use: the caller writes the count and takes the
    /// waker without synchronization.
    #[test]
    fn references_to_two_nodes_do_not_unite() {
        let owner = Arc::new(Shard::new(Loop));
        let timers = [1, 2].map(|at| crate::timer::Timer::once(&owner, at, 0, || ()));
        let refs = || {
            timers
                .each_ref()
                .map(|it| it.node().refs.load(Ordering::Relaxed))
        };
        let [mut one, other] = timers.each_ref().map(|it| it.node().clone());
        assert_eq!(refs(), [3, 3]);
        assert!(!one.unite(other));
        assert_eq!(refs(), [3, 2], "only the other reference was given up");
        drop(one);
        // Two references to each of two nodes: on one node they would suffice.
        let [mut one, other] = timers.each_ref().map(|it| {
            it.cancel();
            it.node().clone()
        });
        assert_eq!(refs(), [2, 2]);
        assert!(!one.unite(other));
        assert_eq!(refs(), [2, 1]);
        let other = one.clone();
        drop(timers);
        assert!(one.unite(other), "both refer to one node");
        drop(one);
        owner.close();
    }

    #[test]
    fn the_offset_of_the_wait_does_not_depend_on_the_payload() {
        #[repr(align(32))]
        struct Wide(#[expect(dead_code, reason = "there for its alignment")] u8);
        assert_eq!(
            std::mem::offset_of!(Node<Loop, Wide>, wait),
            std::mem::offset_of!(Waiting<Loop>, wait)
        );
    }
}
