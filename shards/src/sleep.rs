//! A timer that wakes a task.

use std::{
    ptr::NonNull,
    task::{Poll, Waker},
};

use crate::{
    callback::Flow,
    claim::{Claim, End, NEVER, Outcome},
    home::Home,
    moving::{move_any, moved},
    node::{Header, Kind, Node, NodeRef, VTable},
    owner::Owner,
    shard::Shard,
    sync::Arc,
    taken::Taken,
    timer::Reset,
    type_name::TypeName,
    waker::WakerSlot,
};

struct Table<O>(std::marker::PhantomData<O>);

impl<O: Owner> Table<O> {
    const SLEEP: VTable<O> = VTable {
        kind: Kind::Sleep,
        name: TypeName::new::<Sleep<O>>(),
        run: Self::run,
        end: Some(Self::wake),
        tell: None,
        extras: None,
        free: NodeRef::<O>::free::<WakerSlot, ()>,
    };

    unsafe fn run(ptr: NonNull<Header<O>>) -> Flow {
        // SAFETY: by the table's contract.
        unsafe { Self::wake(ptr) };
        Flow::Break(Outcome::Fired)
    }

    unsafe fn wake(ptr: NonNull<Header<O>>) {
        // SAFETY: a node of this table is a `Node<O, WakerSlot, ()>`; references to it stay shared.
        let node = unsafe { ptr.cast::<Node<O, WakerSlot, ()>>().as_ref() };
        if let Some(waker) = node.payload.take() {
            waker.wake();
        }
    }
}

/// Takes the waker of a sleep that is over, if nobody else is at it.
///
/// # Safety
///
/// The node is a sleep's.
#[inline]
pub(crate) unsafe fn take_waker<O: Owner>(node: &NodeRef<O>) -> Option<Waker> {
    // SAFETY: the nodes of sleeps are of this type, and our reference keeps it alive.
    let node = unsafe { node.as_ptr().cast::<Node<O, WakerSlot, ()>>().as_ref() };
    node.payload.take()
}

/// A timer that wakes one task, and can be armed again.
///
/// Polled and moved by its one owner; the waker may change from poll to poll. Dropping it cancels
/// it.
pub struct Sleep<O: Owner>(NodeRef<O>);

impl<O: Owner> Sleep<O> {
    /// Arms a sleep until `deadline`, in ns. On a closed shard it is over at once.
    pub fn new(home: &Arc<Shard<O>>, deadline: u64) -> Self {
        Self::arm(home, deadline, None)
    }

    /// Arms a sleep that wakes `waker`, as if it had been [polled](Sleep::poll) at once. If it is
    /// over already, `waker` is not woken: ask [`outcome`](Sleep::outcome).
    #[inline]
    pub fn with_waker(home: &Arc<Shard<O>>, deadline: u64, waker: &Waker) -> Self {
        Self::arm(home, deadline, Some(waker.clone()))
    }

    // Always: whether the compiler inlines this depends on the rest of the calling crate otherwise.
    #[inline(always)]
    fn arm(home: &Arc<Shard<O>>, deadline: u64, waker: Option<Waker>) -> Self {
        let deadline = deadline.min(NEVER);
        let at = Home::new(home);
        let (node, carried) = NodeRef::pair(move || Node {
            header: Header::new(&Table::<O>::SLEEP, at, Claim::Pending(deadline)),
            wait: (),
            payload: WakerSlot::new(waker),
        });
        home.insert_new(carried, deadline);
        Self(node)
    }

    #[inline]
    fn slot(&self) -> &WakerSlot {
        // SAFETY: `new` made this a `Node<O, WakerSlot, ()>`, and our reference keeps it alive.
        unsafe {
            &self
                .0
                .as_ptr()
                .cast::<Node<O, WakerSlot, ()>>()
                .as_ref()
                .payload
        }
    }

    /// Whether the sleep is over, and how: fired, or shut down. If not, `waker` will be woken.
    #[inline]
    pub fn poll(&self, waker: &Waker) -> Poll<Outcome> {
        if let Some(how) = self.outcome() {
            return Poll::Ready(how);
        }
        self.slot().register(waker);
        // Who ended it before the waker was there woke nobody.
        self.outcome().map_or(Poll::Pending, Poll::Ready)
    }

    /// How the sleep ended, if it has.
    #[inline]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.0.claim.load() {
            Claim::Over(how) => Some(how),
            _ => None,
        }
    }

    /// Of a sleep that has [fired](Outcome::Fired): when it was taken from the store, if that is
    /// [one of](Taken::is_one_of) `1 << bits` moments. It is told once for each time that the sleep
    /// fires, so that who polls it again counts it no more. At least one bit.
    ///
    /// For statistics: of a sleep that was moved at the moment at which it fired, it may be told
    /// twice, or not at all.
    #[inline]
    pub fn sample(&self, bits: u32) -> Option<Taken> {
        let fired = || self.outcome() == Some(Outcome::Fired);
        self.0.sample(bits, fired)
    }

    /// The deadline, in ns, unless the sleep is over.
    pub fn deadline(&self) -> Option<u64> {
        self.0.claim.load().deadline()
    }

    /// Moves the deadline; a sleep that is over is armed again.
    #[inline]
    pub fn reset(&mut self, deadline: u64) {
        if !self.try_reset(deadline) {
            self.reset_slow(deadline);
        }
    }

    /// Moves the deadline of a sleep that waits, by one compare-exchange. Returns `false` if
    /// nothing was done; that may happen although the sleep waits.
    #[inline]
    pub fn try_reset(&mut self, deadline: u64) -> bool {
        let deadline = deadline.min(NEVER);
        let Some((at, next)) = self.0.claim.move_pending(|_| Some(deadline)) else {
            return false;
        };
        moved(&self.0, at, next);
        true
    }

    /// Slow path of [`reset`](Sleep::reset): the sleep does not wait.
    #[cold]
    #[inline(never)]
    fn reset_slow(&self, deadline: u64) {
        let deadline = deadline.min(NEVER);
        if move_any(&self.0, |_, _| deadline) == Reset::TooLate && self.0.claim.rearm(deadline) {
            self.0.home.armed(&self.0);
            // Who carried it let go of it before it was over.
            self.0.home.arrive(&self.0);
        }
    }

    /// The shard where it waits.
    #[inline]
    pub fn home(&self) -> &Shard<O> {
        &self.0.home
    }
}

impl<O: Owner> Drop for Sleep<O> {
    #[inline]
    fn drop(&mut self) {
        let mut carried = None;
        let claim = &self.0.claim;
        if claim.end_pending(Outcome::Cancelled)
            || claim.end(Outcome::Cancelled, false, false) == End::Won
        {
            carried = self.0.home.hear_gone(&self.0);
            self.0.home.owner().over(Kind::Sleep, Outcome::Cancelled);
        }
        // The waker goes here, not where the node's last reference is dropped: that may be under a
        // lock, and a waker is foreign code.
        let alone = carried.is_some_and(|carried| self.0.unite(carried));
        drop(if alone {
            // SAFETY: whoever is at the slot refers to the node, and only we do.
            unsafe { self.slot().take_alone() }
        } else {
            self.slot().take_last()
        });
    }
}

impl<O: Owner> std::fmt::Debug for Sleep<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sleep").field(&self.0.claim.load()).finish()
    }
}
