//! The shard: the timers of one core.
//!
//! A shard is a store, the inbox through which other threads reach it, the try-lock that guards the
//! store, and the words that it publishes. See `PROTOCOLS.md` beside this crate for the proofs.
//!
//! The lock is held for one operation or one batch, never while foreign code runs: payloads are
//! dropped, and wakers woken, by who gets them out of here.

use std::mem;

use crossbeam_utils::CachePadded;

use crate::{
    claim::NEVER,
    due::Due,
    inbox::Inbox,
    inner::Inner,
    lock::TryLock,
    orphans::Orphans,
    owner::Owner,
    park::Parker,
    store::{Seen, StoreKind},
    sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell},
    taken::Taken,
    watch::Watch,
    watchers::Watchers,
};

mod arriving;
mod moved;
mod news;
mod parking;

pub use parking::Parked;

/// How much is done under one hold of the lock by a thread that does not own the shard.
const BATCH: usize = if cfg!(loom) { 1 } else { 256 };

/// How much of the inbox the owner reads before it looks at what is due: some tens of µs.
const OWNER_BATCH: usize = 1024;

/// So many unread cancellations are let be, however few timers there are.
const GARBAGE_FLOOR: usize = if cfg!(loom) { 1 } else { 64 };

/// With so many, a thread that cancels and is denied the lock lets others run: the holder most
/// likely waits for a core.
const FLOOD: usize = 16 * 1024;

/// The timers of one core.
///
/// Any thread may arm timers here, and cancel and move them, without waiting: see
/// [`Timer`](crate::Timer) and [`Sleep`](crate::Sleep). The owner calls [`expire`](Shard::expire)
/// when [`next_deadline`](Shard::next_deadline) has come, and sleeps by [`park`](Shard::park).
///
/// A shard has to be [closed](Shard::close) in the end: its timers refer to it.
///
/// Its words are on lines of the cache by who writes them.
#[repr(C)]
pub struct Shard<O: Owner> {
    /// Written by who arms and frees timers, but for who keeps spares.
    #[cfg(not(loom))]
    pub(crate) homes: CachePadded<crate::home::Homes>,
    parker: CachePadded<Parker>,
    /// Read by all who arm, written by those who look after a shard.
    pub(crate) watch: CachePadded<Watch>,
    _written_by_who_pushes: NewLine,
    inbox: Inbox<O>,
    /// The earliest deadline that stands in the inbox, or an earlier one.
    inbox_next: AtomicU64,
    /// Cancelled timers whose news nobody has taken from the inbox, or more.
    unread: AtomicUsize,
    _written_under_the_lock: NewLine,
    lock: TryLock,
    /// The store's first key.
    store_next: AtomicU64,
    /// The earliest moment at which the store's first timer may come due, which may be late.
    store_soonest: AtomicU64,
    /// How many timers the store holds.
    stored: AtomicUsize,
    /// How often something was taken from the inbox.
    sweeps: AtomicU64,
    /// Cancelled timers whose news was taken from the inbox and may not be read yet.
    sweeping: AtomicUsize,
    /// Whether a part of the inbox was taken but not read.
    backlogged: AtomicBool,
    inner: UnsafeCell<Inner<O>>,
    _hardly_written: NewLine,
    /// The owner's last moves, one bit for each: whether it was to an earlier deadline. Only the
    /// owner reads and writes this word, so that it is no part of a protocol, and loom need not know
    /// it. See [`expects_earlier`](Shard::expects_earlier).
    earlier: std::sync::atomic::AtomicU32,
    watchers: Watchers,
    owner: O,
}

/// What follows begins a line of the cache.
type NewLine = [CachePadded<()>; 0];

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

impl<O: Owner> Shard<O> {
    /// An empty shard for `owner`, which nobody watches.
    pub fn new(owner: O) -> Self {
        Self::with_watch(owner, Watch::off())
    }

    pub(crate) fn with_watch(owner: O, watch: Watch) -> Self {
        Self {
            #[cfg(not(loom))]
            homes: CachePadded::new(crate::home::Homes::new()),
            parker: CachePadded::new(Parker::new()),
            watch: CachePadded::new(watch),
            _written_by_who_pushes: [],
            inbox: Inbox::new(),
            inbox_next: AtomicU64::new(NEVER),
            unread: AtomicUsize::new(0),
            _written_under_the_lock: [],
            lock: TryLock::new(),
            store_next: AtomicU64::new(NEVER),
            store_soonest: AtomicU64::new(NEVER),
            stored: AtomicUsize::new(0),
            sweeps: AtomicU64::new(0),
            sweeping: AtomicUsize::new(0),
            backlogged: AtomicBool::new(false),
            inner: UnsafeCell::new(Inner::new()),
            _hardly_written: [],
            earlier: std::sync::atomic::AtomicU32::new(0),
            watchers: Watchers::new(),
            owner,
        }
    }

    /// The same shard with a store of this kind, in place of the default one. There are no timers in it
    /// yet, as they would refer to it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tourbillon_shards::{Owner, Shard, store::StoreKind};
    /// # struct Loop;
    /// # impl Owner for Loop {
    /// #     fn wake(&self) {}
    /// #     fn is_current(&self) -> bool { true }
    /// # }
    /// let shard = Arc::new(Shard::new(Loop).with_store(StoreKind::Heap));
    /// ```
    #[must_use]
    pub fn with_store(self, kind: StoreKind) -> Self {
        Self {
            inner: UnsafeCell::new(Inner::with_store(kind)),
            ..self
        }
    }

    /// The worker that owns this shard.
    #[inline]
    pub fn owner(&self) -> &O {
        &self.owner
    }

    pub(crate) fn watchers(&self) -> &Watchers {
        &self.watchers
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

    /// The earliest moment, in ns, at which [`expire`](Shard::expire) may find something: earlier than
    /// [`next_deadline`](Shard::next_deadline) if that is the end of the time that the next timer
    /// [may be late](crate::Options::tolerance). For an owner that is awake anyway; a hint.
    pub fn soonest(&self) -> u64 {
        let soonest = self.store_soonest.load(Ordering::Relaxed);
        self.next_deadline().min(soonest)
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

    /// How many times somebody took from the inbox what other threads had left there, and there was something.
    pub fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::Relaxed)
    }

    /// How many timers were cancelled from other threads without the store having heard of it:
    /// nodes without payload, or more. At most 64 or a quarter of the live timers, whichever is more,
    /// and what is cancelled while somebody holds the shard.
    pub fn garbage(&self) -> usize {
        self.unread.load(Ordering::Relaxed) + self.sweeping.load(Ordering::Relaxed)
    }

    /// Runs `f` on what the lock guards, or leaves word that the caller was denied.
    #[inline]
    fn locked<R>(&self, f: impl FnOnce(&mut Inner<O>) -> R) -> Option<R> {
        self.lock.try_acquire().then(|| self.hold(f))
    }

    /// The same for who has the lock, and gives it up by this.
    #[inline]
    fn hold<R>(&self, f: impl FnOnce(&mut Inner<O>) -> R) -> R {
        let unlock = UnlockOnPanic(self);
        // SAFETY: we hold the lock.
        let result = self.inner.with_mut(|inner| unsafe {
            let result = f(&mut *inner);
            self.publish(&*inner);
            result
        });
        // From here on the lock is not ours, and another thread may have it.
        mem::forget(unlock);
        if self.lock.release() {
            self.look_for_the_denied();
        }
        result
    }

    /// Writes the words that are read without the lock.
    #[inline]
    fn publish(&self, inner: &Inner<O>) {
        let seen = inner.seen();
        let (next, soonest) = inner.next(seen);
        self.publish_store(next, soonest, seen);
        self.backlogged
            .store(!inner.backlog.is_empty(), Ordering::Release);
    }

    /// The same for who leaves the backlog as it is.
    #[inline]
    fn publish_store(&self, next: u64, soonest: u64, seen: Seen) {
        self.store_next.store(next, Ordering::Release);
        self.store_soonest.store(soonest, Ordering::Relaxed);
        self.stored.store(seen.len, Ordering::Relaxed);
    }

    /// Publishes what the store says, where no timer has a tolerance and the backlog is as before.
    #[inline]
    fn publish_exact(&self, inner: &Inner<O>, seen: Seen) {
        let next = inner.next_exact(seen);
        self.publish_store(next, next, seen);
    }

    /// Takes what is due at `now` (in ns) out of the store, in the order of the deadlines, reading
    /// the inbox first (a part of it, if it is long); appends at most `limit` timers to `due`.
    ///
    /// The caller becomes their carrier: it runs them or passes them to who does. Any thread may
    /// call this; one that finds another at it leaves at once, and is told that there may be more.
    #[inline]
    pub fn expire(&self, now: u64, limit: usize, due: &mut Vec<Due<O>>) -> Expired {
        self.expire_until(now, now, limit, due)
    }

    /// The same at `now` for what was due at `until`, which is earlier: for who does it in place of an owner that is
    /// busy, and leaves what the owner may still come to ([`overdue`](Shard::overdue)).
    pub fn expire_until(
        &self,
        until: u64,
        now: u64,
        limit: usize,
        due: &mut Vec<Due<O>>,
    ) -> Expired {
        let until = until.min(NEVER - 1);
        let before = due.len();
        let read = if self.owner.is_current() {
            OWNER_BATCH
        } else {
            BATCH
        };
        let taken = self.locked(|inner| {
            self.drain(inner, read);
            let unread = !inner.backlog.is_empty();
            let limit = before.saturating_add(limit);
            inner.expire(until, Taken::at(now), limit, due) || unread
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
                inner.settle()
            });
            match settled {
                Some(next) => return next,
                None => crate::sync::yield_now(),
            }
        }
    }

    /// Gives back the memory that the store needed for more timers than it has now: if 1,024 timers
    /// or fewer are left, and they need an eighth of its room at most. Both must have been so at the
    /// last call, too. Returns whether the caller is to call this again, some seconds later: no
    /// memory is given back before that. Any thread may call this.
    ///
    /// The shard is locked for some tens of µs, while the timers that are left move, and for half a
    /// ms more for each million of timers that there once was room for. More timers than 1,024 would
    /// take longer, so they stay where they are. If another thread has the shard, nothing is done.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tourbillon_shards::{Owner, Shard, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    /// let shard = Arc::new(Shard::new(Loop));
    /// for i in 0..100_000 {
    ///     Timer::once(&shard, i, i, || ()).cancel();
    /// }
    /// assert!(!shard.shrink(), "there was one timer at a time");
    /// let timers: Vec<_> = (0..100_000).map(|i| Timer::once(&shard, i, i, || ())).collect();
    /// timers.iter().for_each(|timer| _ = timer.cancel());
    /// assert!(shard.shrink(), "there may be as many again soon");
    /// assert!(!shard.shrink());
    /// shard.close();
    /// ```
    pub fn shrink(&self) -> bool {
        let shrunk = self.locked(Inner::shrink);
        // What was outgrown is dropped here, where the lock is free.
        shrunk.is_none_or(|(again, _outgrown)| again)
    }

    /// Ends all timers with [`Outcome::Shutdown`](crate::Outcome::Shutdown), and refuses those that come later.
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
                inner.empty(&mut nodes);
                nodes
            });
            match closed {
                Some(nodes) => return Orphans::new(nodes),
                None => crate::sync::yield_now(),
            }
        }
    }
}

/// Unlocks a shard when a panic leaves what is done under its lock: by documented bounds, that is a store that is
/// full, which the panic leaves as it was.
///
/// The shard goes on, and the process with it. What the lock guards is made of safe code alone, so that whatever
/// a panic of another kind leaves there may be wrong, but no access to it is.
struct UnlockOnPanic<'a, O: Owner>(&'a Shard<O>);

impl<O: Owner> Drop for UnlockOnPanic<'_, O> {
    #[cold]
    fn drop(&mut self) {
        let shard = self.0;
        // The published deadlines are lower bounds at any moment, but there may be news that nobody has read,
        // of who was denied too. The owner reads it, and publishes again.
        shard.backlogged.store(true, Ordering::Release);
        let _denied = shard.lock.release();
        shard.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
