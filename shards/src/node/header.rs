//! The header of a node, and the table of functions for its payload.

use std::{num::NonZeroU64, ptr::NonNull};

use tourbillon_sync::{AtomicU32, Ordering, TypeName};

use crate::{
    answer::{Flow, Kind, Outcome},
    node::{
        claim::ClaimWord, extras::Extras, link::Link, location::Location, refs::Refs, state::Claim,
        taken::Taken,
    },
    owner::Owner,
    shard::home::Home,
    tolerance::Tolerance,
};

/// Function that finds the options of a node.
pub(crate) type FindExtras<O> = unsafe fn(NonNull<Header<O>>) -> NonNull<Extras>;

/// Function that returns the origin of a node.
pub(crate) type FindOrigin<O> = unsafe fn(NonNull<Header<O>>) -> Option<NonZeroU64>;

/// Function that calls a node's callback with the outcome of its timer.
pub(crate) type Deliver<O> = unsafe fn(NonNull<Header<O>>, Outcome);

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
    pub(crate) deliver: Option<Deliver<O>>,
    /// Finds the options of the node, if it has any.
    pub(crate) extras: Option<FindExtras<O>>,
    /// Returns the origin of a node without options, if it has one.
    pub(crate) origin: Option<FindOrigin<O>>,
    /// Removes the node from the list of its name, if it is in one. `None` for a node without
    /// options, which has no name.
    pub(crate) leave_name: Option<unsafe fn(NonNull<Header<O>>)>,
    /// Frees the node. Its payload is gone, and the caller held the last reference.
    pub(crate) free: unsafe fn(NonNull<Header<O>>),
}

/// Common part of all nodes.
pub(crate) struct Header<O: Owner> {
    pub(crate) claim: ClaimWord,
    /// Link of the inbox: whether the node is queued there, and which node follows.
    pub(crate) link: Link<Self>,
    pub(crate) vtable: &'static VTable<O>,
    pub(crate) home: Home<O>,
    /// The number of references, which only [`NodeRef`](super::NodeRef) reads and writes, and the
    /// tolerance.
    pub(super) refs: Refs,
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
            refs: Refs::new(1),
            location: AtomicU32::new(Location::None.pack()),
        }
    }

    #[inline]
    pub(crate) fn location(&self) -> Location {
        Location::unpack(self.location.load(Ordering::Acquire))
    }

    /// Sets the node's location. Only its holder calls this.
    #[inline]
    pub(crate) fn set_location(&self, location: Location) {
        self.location.store(location.pack(), Ordering::Release);
    }

    /// Marks the node, which is due, as in a deque since `taken`. Only for the holder.
    #[inline]
    pub(crate) fn set_taken(&self, taken: Taken) {
        let word = Location::NONE | Location::IN_DEQUE | taken.bits();
        self.location.store(word, Ordering::Release);
    }

    /// Marks the node as in no deque, and keeps the time of taking. Only for the holder.
    ///
    /// A load and a store suffice. Until the store, no other thread gives the node a slot. If a
    /// second holder exists, the owner of the sleep may spoil the time in between; the store then
    /// undoes that, which "One holder" in `PROTOCOLS.md` allows.
    #[inline]
    pub(crate) fn set_let_go(&self) {
        let word = self.location.load(Ordering::Relaxed) & !Location::IN_DEQUE;
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
    /// left alone, and a word that changes meanwhile is not written. See "One holder" in
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

    /// Sets how late the timer may run, for a thread that alone knows the node. The timer was exact
    /// until now.
    pub(crate) fn set_tolerance(&self, tolerance: Tolerance) {
        self.refs.set_tolerance(tolerance);
    }

    /// Returns how late the timer may run.
    #[inline]
    pub(crate) fn tolerance(&self) -> Tolerance {
        self.refs.tolerance()
    }

    /// Returns the key under which the store keeps the deadline: the deadline itself, or for a
    /// timer with a tolerance the moment to which it is [rounded](Tolerance::coalesced).
    #[inline]
    pub(crate) fn key(&self, deadline: u64) -> u64 {
        match self.tolerance() {
            Tolerance::EXACT => deadline,
            tolerance => tolerance.coalesced(deadline),
        }
    }

    /// Returns whether this is a recurring timer.
    #[inline]
    pub(crate) fn recurs(&self) -> bool {
        self.vtable.kind == Kind::Recurring
    }

    /// Returns whether the callback takes outcomes, that is also runs for `Cancelled` and
    /// `Shutdown`.
    #[inline]
    pub(crate) fn takes_outcome(&self) -> bool {
        self.vtable.deliver.is_some()
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
