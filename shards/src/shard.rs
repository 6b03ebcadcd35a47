//! The shard: the timers of one core.
//!
//! A shard is a store, the inbox through which other threads reach it, the try-lock that guards the
//! store, and the words that it publishes. See `PROTOCOLS.md` beside this crate for the proofs.
//!
//! The lock is held for one operation or one batch, never while foreign code runs: payloads are
//! dropped, and wakers woken, by who gets them out of here.

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
    sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell, fence},
};

/// How much is done under one hold of the lock by a thread that does not own the shard.
const BATCH: usize = 256;

/// What a shard asks of the worker that owns it.
pub trait Owner: Send + Sync + Sized + 'static {
    /// Wakes the owner, which is asleep or about to be: a write to its eventfd, say. Called at most
    /// once for each time that the owner parks, from any thread, and never under a lock of the shard.
    fn wake(&self);

    /// Whether the calling thread is the owner. Decides between the store and the inbox; a wrong
    /// answer costs time, no more.
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
    /// Cancelled timers of which the drainer has not heard, or more.
    unread: AtomicUsize,
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
    /// Whether there may be more: the limit was reached, or another thread had the shard.
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

/// Where an arriving node ended up.
enum Arrival<O: Owner> {
    Home,
    /// The shard is closed; the node is for the caller to end.
    Refused(NodeRef<O>),
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
        self.store_next
            .load(Ordering::Acquire)
            .min(self.inbox_next.load(Ordering::Acquire))
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
    /// nodes without payload. At most `max(64, stored / 4)`, and what is cancelled while somebody
    /// holds the shard.
    pub fn garbage(&self) -> usize {
        self.unread.load(Ordering::Relaxed)
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
        // What we moved from the inbox to the store may be earlier than what the owner sleeps for,
        // and the owner may have looked at both while it was in neither.
        if !self.owner.is_current() {
            self.wake_before(self.next_deadline());
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

    /// Brings home a node whose carrier has let go of it (its location is `None`), with a reference
    /// to carry it by.
    pub(crate) fn arrive(&self, node: NodeRef<O>) {
        if let Arrival::Refused(node) = self.try_arrive(node) {
            end(node, Outcome::Shutdown);
        }
    }

    fn try_arrive(&self, node: NodeRef<O>) -> Arrival<O> {
        if !self.owner.is_current() {
            return self.arrive_by_inbox(node);
        }
        let mut node = Some(node);
        let refused = self.locked(|inner| {
            if inner.closed {
                return true;
            }
            // What is over meanwhile is let go of outside.
            node = node.take().and_then(|node| inner.read(node));
            false
        });
        match (refused, node) {
            (None, Some(node)) => self.arrive_by_inbox(node),
            (Some(true), Some(node)) => Arrival::Refused(node),
            (_, _) => Arrival::Home,
        }
    }

    fn arrive_by_inbox(&self, node: NodeRef<O>) -> Arrival<O> {
        let deadline = node.claim.load().deadline();
        // If it stands in the inbox already, with news, who drains it finds that nobody carries it,
        // and carries it from then on; that entry has a reference of its own.
        if !node.queued.swap(true, Ordering::AcqRel) {
            if let Err(node) = self.inbox.push(node) {
                return Arrival::Refused(node);
            }
        }
        if let Some(deadline) = deadline {
            self.announce(deadline);
        }
        Arrival::Home
    }

    /// Publishes a deadline that was pushed, and wakes the owner if it would sleep past it.
    fn announce(&self, deadline: u64) {
        self.inbox_next.fetch_min(deadline, Ordering::AcqRel);
        if !self.wake_before(deadline) {
            self.owner.wake_skipped();
        }
    }

    /// Leaves word of a node whose claim word has changed.
    fn tell(&self, node: &NodeRef<O>) {
        if !node.queued.swap(true, Ordering::AcqRel) {
            // A closed inbox needs no news: who closed it ends all.
            drop(self.inbox.push(node.clone()));
        }
    }

    /// The node's deadline was made earlier than it was.
    pub(crate) fn hear_earlier(&self, node: &NodeRef<O>, deadline: u64) {
        if self.owner.is_current() && self.locked(|inner| inner.apply(node)).is_some() {
            return;
        }
        self.tell(node);
        self.announce(deadline);
    }

    /// The node is over; its payload is gone already.
    pub(crate) fn hear_gone(&self, node: &NodeRef<O>) {
        if self.owner.is_current() {
            let heard = self.locked(|inner| match node.location() {
                // Let go of outside the lock.
                Location::Slot(_) => Some(inner.apply(node)),
                Location::Deque => Some(None),
                // It stands in the inbox, and counts until it is read.
                Location::None => None,
            });
            if let Some(Some(_carried)) = heard {
                return;
            }
        }
        self.tell(node);
        let unread = self.unread.fetch_add(1, Ordering::Relaxed) + 1;
        if unread > (self.stored() / 4).max(64) {
            // Who holds the shard meanwhile will find the mark, and drain.
            self.locked(|inner| self.drain(inner, BATCH));
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
                if inner.closed || (self.inbox.is_empty() && !stale) {
                    break;
                }
                // Before the taking: who pushes later lowers it again.
                inner.backlog_next = self.inbox_next.swap(NEVER, Ordering::AcqRel);
                self.unread.swap(0, Ordering::AcqRel);
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
        }
    }

    /// Takes what is due at `now` (in ns) out of the store, in the order of the deadlines, reading
    /// the inbox first; appends at most `limit` timers to `due`.
    ///
    /// The caller becomes their carrier: it runs them or passes them to who does. Any thread may
    /// call this; one that finds another at it leaves at once, and is told that there may be more.
    pub fn expire(&self, now: u64, limit: usize, due: &mut Vec<Due<O>>) -> Expired {
        let now = now.min(NEVER - 1);
        let before = due.len();
        let taken = self.locked(|inner| {
            let local = self.owner.is_current();
            self.drain(inner, if local { usize::MAX } else { BATCH });
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
                match node.claim.expire(now) {
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
        searchers.park(searching);
        self.parker.announce(until);
        let sleeps = !self.has_news() && self.next_deadline() >= until && !work();
        if sleeps {
            sleep(until);
        }
        let searching = self.parker.resume();
        searchers.unpark();
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
pub(crate) fn end<O: Owner>(node: NodeRef<O>, how: Outcome) {
    if node.claim.end(how, node.recurs()) == End::Won {
        // SAFETY: we won the claim, and the table is the node's own.
        unsafe { (node.vtable.end)(node.as_ptr()) };
        node.home.owner().over(node.vtable.kind, how);
    }
}

/// The timers of a shard that was closed; each ends as this is dropped.
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
            .map(|node| end(node, Outcome::Shutdown))
            .is_some()
    }
}

impl<O: Owner> Drop for Orphans<O> {
    fn drop(&mut self) {
        while self.end_one() {}
    }
}

/// A shard shared by its worker, its timers and whoever arms them.
pub type SharedShard<O> = Arc<Shard<O>>;
