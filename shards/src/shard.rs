//! The shard: the timers of one core.
//!
//! A shard is a store, the inbox through which other threads reach it, the try-lock that guards the
//! store, and the words that it publishes. See `PROTOCOLS.md` beside this crate for the proofs.
//!
//! The lock is held for one operation or one batch, never while foreign code runs: payloads are
//! dropped, and wakers woken, by who gets them out of here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_utils::CachePadded;

use crate::{
    claim::{Claim, End, Expiry, NEVER, Outcome},
    due::Due,
    inbox::{Batch, Inbox},
    lock::TryLock,
    node::{Kind, Location, NodeRef},
    park::Parker,
    search::Searchers,
    store::{Heap, Store},
    sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell, fence},
};

/// How much is done under one hold of the lock by a thread that does not own the shard.
const BATCH: usize = if cfg!(loom) { 1 } else { 256 };

/// How much of the inbox the owner reads before it looks at what is due: some tens of µs.
const OWNER_BATCH: usize = 1024;

/// So many unread cancellations are let be, however few timers there are.
const GARBAGE_FLOOR: usize = if cfg!(loom) { 1 } else { 64 };

/// What a shard asks of the worker that owns it.
pub trait Owner: Send + Sync + Sized + 'static {
    /// Wakes the owner, which is asleep or about to be: a write to its eventfd, say. Called at most
    /// once for each time that the owner parks (though perhaps so late that it has parked again),
    /// from any thread, and never under a lock of the shard.
    fn wake(&self);

    /// Whether the calling thread is the owner. Decides between the store and the inbox. A wrong
    /// *no* costs time, no more; after a wrong *yes* the owner may sleep past a deadline.
    fn is_current(&self) -> bool;

    /// News was brought from another thread that the owner, awake or waking in time, needs no wake
    /// for.
    fn wake_skipped(&self) {}

    /// A timer of this shard is over. Called once for each, from whichever thread ended it, and
    /// never under a lock of the shard.
    fn over(&self, _kind: Kind, _how: Outcome) {}
}

/// The timers of one core.
///
/// Any thread may arm timers here, and cancel and move them, without waiting: see
/// [`Timer`](crate::Timer) and [`Sleep`](crate::Sleep). The owner calls [`expire`](Shard::expire)
/// when [`next_deadline`](Shard::next_deadline) has come, and sleeps by [`park`](Shard::park).
///
/// A shard has to be [closed](Shard::close) in the end: its timers refer to it.
pub struct Shard<O: Owner> {
    owner: O,
    parker: CachePadded<Parker>,
    inbox: CachePadded<Inbox<O>>,
    /// The earliest deadline that stands in the inbox, or an earlier one.
    inbox_next: AtomicU64,
    /// Cancelled timers whose news nobody has taken from the inbox, or more.
    unread: AtomicUsize,
    /// Cancelled timers whose news was taken from the inbox and may not be read yet. Written under
    /// the lock.
    sweeping: AtomicUsize,
    lock: CachePadded<TryLock>,
    /// The store's first key. Written under the lock.
    store_next: AtomicU64,
    /// How many timers the store holds. Written under the lock.
    stored: AtomicUsize,
    /// Whether a part of the inbox was taken but not read. Written under the lock.
    backlogged: AtomicBool,
    inner: UnsafeCell<Inner<O>>,
}

/// What the lock guards.
pub(crate) struct Inner<O: Owner> {
    store: Heap,
    /// The carried node of each slot.
    nodes: Vec<Option<NodeRef<O>>>,
    /// What was taken from the inbox and not read yet.
    backlog: Batch<O>,
    /// A lower bound of the deadlines in `backlog`.
    backlog_next: u64,
    closed: bool,
}

// SAFETY: `inner` is only reached under the lock, and all in it is Send; the rest is Sync.
unsafe impl<O: Owner> Sync for Shard<O> {}
// SAFETY: as above.
unsafe impl<O: Owner> Send for Shard<O> {}

/// What [`Shard::expire`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// How many timers came due.
    pub count: usize,
    /// Whether there may be more: the limit was reached, a part of the inbox was not read, or another
    /// thread had the shard. There may
    /// be none all the same.
    pub more: bool,
}

/// What [`Shard::park`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Whether the worker slept (or at least called `sleep`).
    pub slept: bool,
    /// Whether the worker was woken to search, and counts as a searcher.
    pub searching: bool,
}

impl<O: Owner> Shard<O> {
    /// An empty shard for `owner`.
    pub fn new(owner: O) -> Self {
        Self {
            owner,
            parker: CachePadded::new(Parker::new()),
            inbox: CachePadded::new(Inbox::new()),
            inbox_next: AtomicU64::new(NEVER),
            unread: AtomicUsize::new(0),
            sweeping: AtomicUsize::new(0),
            lock: CachePadded::new(TryLock::new()),
            store_next: AtomicU64::new(NEVER),
            stored: AtomicUsize::new(0),
            backlogged: AtomicBool::new(false),
            inner: UnsafeCell::new(Inner {
                store: Heap::new(),
                nodes: Vec::new(),
                backlog: Batch::empty(),
                backlog_next: NEVER,
                closed: false,
            }),
        }
    }

    /// The worker that owns this shard.
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// The worker's parked word.
    pub fn parker(&self) -> &Parker {
        &self.parker
    }

    /// The earliest moment, in ns, at which a timer here may come due; [`NEVER`] if there is none.
    /// May be too early, never too late.
    pub fn next_deadline(&self) -> u64 {
        // In this order: a drainer publishes a deadline as the store's before it takes it from the
        // inbox's.
        let inbox = self.inbox_next.load(Ordering::Acquire);
        inbox.min(self.store_next.load(Ordering::Acquire))
    }

    /// Whether other threads have left something in the inbox that nobody has read.
    pub fn has_news(&self) -> bool {
        self.backlogged.load(Ordering::Acquire) || !self.inbox.is_empty()
    }

    /// How many timers are in the store, as of the last change: those that are pending, but for
    /// arrivals that stand in the inbox, and those that were cancelled from elsewhere and are not
    /// swept out yet.
    pub fn stored(&self) -> usize {
        self.stored.load(Ordering::Relaxed)
    }

    /// How many timers were cancelled from other threads without the store having heard of it:
    /// nodes without payload, or more. At most 64 or a quarter of the live timers, whichever is more,
    /// and what is cancelled while somebody holds the shard.
    pub fn garbage(&self) -> usize {
        self.unread.load(Ordering::Relaxed) + self.sweeping.load(Ordering::Relaxed)
    }

    /// Runs `f` on what the lock guards, or leaves word that the caller was denied.
    fn locked<R>(&self, f: impl FnOnce(&mut Inner<O>) -> R) -> Option<R> {
        if !self.lock.try_acquire() {
            return None;
        }
        // SAFETY: we hold the lock.
        let result = self.inner.with_mut(|inner| unsafe {
            let result = f(&mut *inner);
            self.publish(&*inner);
            result
        });
        // Who was denied meanwhile left its news in the inbox.
        while self.lock.release() && self.lock.try_acquire() {
            // SAFETY: we hold the lock.
            self.inner.with_mut(|inner| unsafe {
                self.drain(&mut *inner, BATCH);
                self.publish(&*inner);
            });
        }
        Some(result)
    }

    /// Writes the words that are read without the lock.
    fn publish(&self, inner: &Inner<O>) {
        let next = inner
            .store
            .first()
            .map_or(NEVER, |(key, _)| key)
            .min(inner.backlog_next);
        self.store_next.store(next, Ordering::Release);
        self.stored.store(inner.store.len(), Ordering::Relaxed);
        self.backlogged
            .store(!inner.backlog.is_empty(), Ordering::Release);
    }

    /// Wakes the owner if it sleeps past `deadline`.
    fn wake_before(&self, deadline: u64) -> bool {
        fence(Ordering::SeqCst);
        let wake = self.parker.claim_if_later(deadline);
        if wake {
            self.owner.wake();
        }
        wake
    }

    /// Wakes the owner if it sleeps, whatever for.
    pub fn wake(&self) -> bool {
        self.wake_before(0)
    }

    /// Brings home a node whose carrier has let go of it (its location is `None`).
    pub(crate) fn arrive(&self, node: &NodeRef<O>) {
        if self.owner.is_current() {
            // What is over meanwhile is given back, to be let go of outside the lock.
            let arrived = self.locked(|inner| {
                let open = !inner.closed;
                open.then(|| inner.read(node.clone()))
            });
            match arrived {
                Some(Some(_over)) => return,
                Some(None) => return end(node, Outcome::Shutdown),
                None => {}
            }
        }
        self.tell(node);
        self.announce(node);
    }

    /// Puts a node whose claim word has changed into the inbox, if it does not stand there already;
    /// who drains it then finds whether anybody carries it, and if not, carries it from then on.
    ///
    /// A closed shard has no use for it, and ends it; then this is false. Who closed it may have
    /// seen the node in a deque, or nowhere.
    fn tell(&self, node: &NodeRef<O>) -> bool {
        if !node.queued.swap(true, Ordering::AcqRel) {
            if let Err(node) = self.inbox.push(node.clone()) {
                end(&node, Outcome::Shutdown);
                return false;
            }
        }
        true
    }

    /// Publishes the deadline of a node that was pushed, and wakes the owner if it would sleep past
    /// it.
    ///
    /// The word is read after the push, and once more after the fence: who made the deadline earlier
    /// and found the node `queued` before it was pushed relied on that. The owner that it woke found
    /// nothing.
    fn announce(&self, node: &NodeRef<O>) {
        let mut announced = u64::MAX;
        while let Some(deadline) = node.claim.load().deadline().filter(|&at| at < announced) {
            self.inbox_next.fetch_min(deadline, Ordering::AcqRel);
            if !self.wake_before(deadline) {
                self.owner.wake_skipped();
            }
            announced = deadline;
        }
    }

    /// Applies the news of a node at once; false if that has to go through the inbox, where the
    /// node may stand.
    fn hear(&self, node: &NodeRef<O>) -> bool {
        if !self.owner.is_current() {
            return false;
        }
        let heard = self.locked(|inner| match node.location() {
            // Given back, to be let go of outside the lock.
            Location::Slot(_) => Some(inner.apply(node)),
            Location::Deque => Some(None),
            Location::None => None,
        });
        matches!(heard, Some(Some(_)))
    }

    /// The node's deadline was made earlier than it was.
    pub(crate) fn hear_earlier(&self, node: &NodeRef<O>) {
        if !self.hear(node) {
            self.tell(node);
            self.announce(node);
        }
    }

    /// The node is over; its payload is gone already.
    pub(crate) fn hear_gone(&self, node: &NodeRef<O>) {
        if self.hear(node) {
            return;
        }
        if !self.tell(node) {
            return;
        }
        self.unread.fetch_add(1, Ordering::Relaxed);
        let garbage = self.garbage();
        let live = self.stored().saturating_sub(garbage);
        if garbage > (live / 4).max(GARBAGE_FLOOR) {
            // Who holds the shard meanwhile will find the mark, and drain.
            self.locked(|inner| self.drain(inner, BATCH));
        }
    }

    /// Takes the deadline that is published for the inbox, which is published for the store before
    /// that. For whoever holds the lock.
    fn take_inbox_next(&self) -> u64 {
        let mut next = self.inbox_next.load(Ordering::Acquire);
        loop {
            if next < self.store_next.load(Ordering::Relaxed) {
                self.store_next.store(next, Ordering::Release);
            }
            match self.inbox_next.compare_exchange_weak(
                next,
                NEVER,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return next,
                Err(now) => next = now,
            }
        }
    }

    /// Reads at most `limit` news from the inbox. For whoever holds the lock.
    fn drain(&self, inner: &mut Inner<O>, limit: usize) {
        let mut read = 0;
        while read < limit {
            if inner.backlog.is_empty() {
                // A pusher that was overtaken by a drainer leaves a deadline behind: that has to be
                // taken away, too, or the owner would wake for it again and again.
                let stale = self.inbox_next.load(Ordering::Acquire) != NEVER;
                if self.inbox.is_empty() && !stale {
                    break;
                }
                // Before the taking: who pushes later lowers it again.
                inner.backlog_next = self.take_inbox_next();
                let unread = self.unread.swap(0, Ordering::AcqRel);
                self.sweeping.store(unread, Ordering::Relaxed);
                inner.backlog = self.inbox.take();
            }
            let Some(node) = inner.backlog.next() else {
                continue;
            };
            drop(inner.read(node));
            read += 1;
        }
        if inner.backlog.is_empty() {
            inner.backlog_next = NEVER;
            self.sweeping.store(0, Ordering::Relaxed);
        }
    }

    /// Takes what is due at `now` (in ns) out of the store, in the order of the deadlines, reading
    /// the inbox first (a part of it, if it is long); appends at most `limit` timers to `due`.
    ///
    /// The caller becomes their carrier: it runs them or passes them to who does. Any thread may
    /// call this; one that finds another at it leaves at once, and is told that there may be more.
    pub fn expire(&self, now: u64, limit: usize, due: &mut Vec<Due<O>>) -> Expired {
        let now = now.min(NEVER - 1);
        let before = due.len();
        let read = if self.owner.is_current() {
            OWNER_BATCH
        } else {
            BATCH
        };
        let taken = self.locked(|inner| {
            self.drain(inner, read);
            let mut more = !inner.backlog.is_empty();
            while let Some((key, slot)) = inner.store.first() {
                if key > now {
                    break;
                }
                if due.len() - before == limit {
                    more = true;
                    break;
                }
                let node = inner.nodes[slot as usize]
                    .as_ref()
                    .expect("a held slot has a node");
                // By the key, not by the time: what was moved later goes back even if it is due,
                // and comes out in its turn.
                match node.claim.expire(key) {
                    Expiry::Later(at) => {
                        inner.store.rekey(slot, at);
                        continue;
                    }
                    Expiry::Due => {
                        node.set_location(Location::Deque);
                        due.push(Due::new(inner.take(slot)));
                    }
                    Expiry::Over => {
                        node.set_location(Location::None);
                        drop(inner.take(slot));
                    }
                }
            }
            more
        });
        Expired {
            count: due.len() - before,
            more: taken.unwrap_or(true),
        }
    }

    /// Reads all news, and answers the earliest deadline of a timer that waits here, in ns; [`NEVER`]
    /// if none does. Exact, where [`next_deadline`](Shard::next_deadline) may be too early, unless
    /// others arm, move or cancel meanwhile.
    ///
    /// Any thread may call this. It takes as long as there is news to read, and waits for the lock if
    /// another thread has it, which holds it for one batch.
    pub fn settle(&self) -> u64 {
        loop {
            let settled = self.locked(|inner| {
                self.drain(inner, usize::MAX);
                while let Some((key, slot)) = inner.store.first() {
                    let node = inner.nodes[slot as usize]
                        .as_ref()
                        .expect("a held slot has a node");
                    match node.claim.load() {
                        Claim::Pending(at) if at > key => inner.store.rekey(slot, at),
                        Claim::Pending(at) => return at,
                        _ => {
                            node.set_location(Location::None);
                            drop(inner.take(slot));
                        }
                    }
                }
                NEVER
            });
            match settled {
                Some(next) => return next,
                None => crate::sync::yield_now(),
            }
        }
    }

    /// Sleeps until the next deadline, or until woken. For the owner, which is a searcher if it
    /// says so.
    ///
    /// `work` is asked whether there is anything to do after all, once the worker has announced
    /// that it sleeps; `sleep` sleeps until the moment given, in ns (or [`NEVER`]), or until
    /// [`Owner::wake`].
    pub fn park(
        &self,
        searchers: &Searchers,
        searching: bool,
        work: impl FnOnce() -> bool,
        sleep: impl FnOnce(u64),
    ) -> Parked {
        let until = self.next_deadline();
        // In this order, and in the reverse afterwards: whoever counts as parked can be claimed.
        self.parker.announce(until);
        searchers.park(searching);
        let work = work();
        let sleeps = !self.has_news() && self.next_deadline() >= until && !work;
        if sleeps {
            sleep(until);
        }
        searchers.unpark();
        // Who brought the work may have relied on us as a searcher: that we are again, unless there
        // are enough others.
        let searching = self.parker.resume() || (work && searchers.begin());
        Parked {
            slept: sleeps,
            searching,
        }
    }

    /// Ends all timers with [`Outcome::Shutdown`], and refuses those that come later.
    ///
    /// Those that wait are given to the caller, who drops them where foreign code may run: that
    /// drops their callbacks and wakes their tasks. Those that are due are their carriers' to end
    /// ([`Due::shutdown`]).
    ///
    /// Waits for the lock if another thread has it, which holds it for one batch.
    pub fn close(&self) -> Orphans<O> {
        loop {
            let closed = self.locked(|inner| {
                inner.closed = true;
                let mut nodes: Vec<_> = inner.backlog.by_ref().collect();
                nodes.extend(self.inbox.close());
                inner.backlog_next = NEVER;
                self.inbox_next.swap(NEVER, Ordering::AcqRel);
                self.unread.swap(0, Ordering::AcqRel);
                self.sweeping.store(0, Ordering::Relaxed);
                while let Some((_, slot)) = inner.store.first() {
                    let node = inner.take(slot);
                    node.set_location(Location::None);
                    nodes.push(node);
                }
                inner.nodes = Vec::new();
                inner.store = Heap::new();
                nodes
            });
            match closed {
                Some(nodes) => return Orphans(nodes),
                None => crate::sync::yield_now(),
            }
        }
    }
}

impl<O: Owner> Inner<O> {
    /// Puts an arriving node into the store, or gives it back if it is over.
    fn insert(&mut self, node: NodeRef<O>) -> Option<NodeRef<O>> {
        // The word is read under the lock: news that was drained before found the node elsewhere.
        let Claim::Pending(deadline) = node.claim.load() else {
            return Some(node);
        };
        let slot = self.store.insert(deadline);
        node.set_location(Location::Slot(slot));
        let index = slot as usize;
        if index == self.nodes.len() {
            self.nodes.push(Some(node));
        } else {
            self.nodes[index] = Some(node);
        }
        None
    }

    /// Takes a node out of the store. The caller says where it is from now on.
    fn take(&mut self, slot: u32) -> NodeRef<O> {
        self.store.remove(slot);
        self.nodes[slot as usize]
            .take()
            .expect("a held slot has a node")
    }

    /// Makes the store agree with the claim word of a node; gives back the node if that took it
    /// out. For nodes that are carried elsewhere it does nothing.
    fn apply(&mut self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        let Location::Slot(slot) = node.location() else {
            return None;
        };
        match node.claim.load() {
            Claim::Pending(deadline) => {
                // A later one can wait until the old one comes up.
                if deadline < self.store.key(slot) {
                    self.store.rekey(slot, deadline);
                }
                None
            }
            _ => {
                node.set_location(Location::None);
                Some(self.take(slot))
            }
        }
    }

    /// Reads one entry of the inbox, an arrival or news; gives back what is not carried here after
    /// it.
    fn read(&mut self, node: NodeRef<O>) -> Option<NodeRef<O>> {
        match node.location() {
            // If it is not pending it is over, or due in the hands of somebody who is putting it
            // back this moment, and will find that out.
            Location::None => self.insert(node),
            Location::Slot(_) => self.apply(&node),
            // Whoever takes it from the deque looks at the word.
            Location::Deque => Some(node),
        }
    }
}

/// Ends a node, and its payload with it if it had not ended before.
pub(crate) fn end<O: Owner>(node: &NodeRef<O>, how: Outcome) {
    if node.claim.end(how, node.recurs()) == End::Won {
        node.home.owner().over(node.vtable.kind, how);
        // Last, because it may panic.
        // SAFETY: we won the claim, and the table is the node's own.
        unsafe { (node.vtable.end)(node.as_ptr()) };
    }
}

/// The timers of a shard that was closed; each ends as this is dropped. If ending one panics, the
/// others are ended all the same.
pub struct Orphans<O: Owner>(Vec<NodeRef<O>>);

impl<O: Owner> Orphans<O> {
    /// How many there are, those that were over already included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends one of them, if there is one.
    pub fn end_one(&mut self) -> bool {
        self.0
            .pop()
            .map(|node| end(&node, Outcome::Shutdown))
            .is_some()
    }
}

impl<O: Owner> Drop for Orphans<O> {
    fn drop(&mut self) {
        /// Ends the rest even if one of them panics.
        struct Rest<'a, O: Owner>(&'a mut Orphans<O>);
        impl<O: Owner> Drop for Rest<'_, O> {
            fn drop(&mut self) {
                while catch_unwind(AssertUnwindSafe(|| self.0.end_one())).unwrap_or(true) {}
            }
        }
        let rest = Rest(self);
        while rest.0.end_one() {}
    }
}
