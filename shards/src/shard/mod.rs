//! A shard holds the timers of one worker.
//!
//! It has four parts: a store, the inbox through which remote threads reach the store, the try-lock
//! that guards the store, and the words that the shard publishes. `PROTOCOLS.md` beside this crate
//! has the proofs; its section "Overview" has a picture.
//!
//! This file has the words and the lock. Each operation has a file: `insert`, `update` (with the
//! drain of the inbox), `moved`, `expire`, `close`, `park` and `alarm`.
//!
//! A thread holds the lock for one operation or one batch. No user code runs under it, except the
//! condition of a timer. The thread that takes a timer out of the shard drops its payload or wakes
//! its task after the release.

use std::mem;

use crossbeam_utils::CachePadded;
use tourbillon_sched::{Alarm, Parker};
use tourbillon_sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, Patience, UnsafeCell};

use crate::{
    node::claim::NEVER,
    owner::Owner,
    shard::{home::HomeCount, inbox::Inbox, inner::Inner, lock::TryLock, waiters::Waiters},
    store::any::{Seen, StoreKind},
};

mod alarm;
mod close;
pub(crate) mod drained;
pub(crate) mod expire;
pub(crate) mod home;
pub(crate) mod inbox;
pub(crate) mod inner;
mod insert;
pub(crate) mod lock;
pub(crate) mod mates;
mod moved;
mod park;
mod prompt;
mod update;
pub(crate) mod waiters;

/// The number of unread cancellations above which a canceller that is denied the lock yields its
/// core. The holder of the lock most likely waits for a core.
const FLOOD: usize = 16 * 1024;

/// Returns how many updates a remote thread reads from the inbox while it holds the lock. A model
/// may change this.
#[inline(always)]
fn batch() -> usize {
    #[cfg(loom)]
    return crate::node::model::BATCH.get();
    #[cfg(not(loom))]
    256
}

/// Returns the number of unread cancellations that is always allowed, however few timers there are.
/// See "Garbage" in `PROTOCOLS.md`. A model may change this.
#[inline(always)]
fn garbage_floor() -> usize {
    #[cfg(loom)]
    return crate::node::model::GARBAGE_FLOOR.get();
    #[cfg(not(loom))]
    64
}

/// Holds the timers of one worker.
///
/// Any thread may arm, cancel and move timers of a shard, and never waits for another thread: see
/// [`Timer`](crate::Timer) and [`Sleep`](crate::Sleep). The owner calls [`expire`](Shard::expire)
/// when [`next_deadline`](Shard::next_deadline) has passed, and sleeps by
/// [`sleep_until`](Shard::sleep_until), or as a worker of
/// [`Searchers`](tourbillon_sched::Searchers).
///
/// A shard must be [closed](Shard::close) explicitly: its timers hold references to it.
///
/// The fields are grouped by the threads that write them. Each group begins a cache line.
#[repr(C)]
pub struct Shard<O: Owner> {
    /// The reference count. Threads with a `Spares` cache skip it.
    homes: CachePadded<HomeCount>,
    parker: CachePadded<Parker>,
    /// Read by each thread that arms a timer. Written mostly by the owner and by the peers that
    /// watch it.
    alarm: CachePadded<Alarm>,
    _line_of_pushers: NewLine,
    inbox: Inbox<O>,
    /// A lower bound of the deadlines in the inbox. See "Published words" in `PROTOCOLS.md`.
    inbox_next: AtomicU64,
    /// An upper bound of the cancelled timers whose updates are in the inbox.
    unread: AtomicUsize,
    _line_under_the_lock: NewLine,
    lock: TryLock,
    /// The smallest key of the store.
    store_next: AtomicU64,
    /// The deadline of the first timer, which is earlier than its key if the timer may be late.
    store_soonest: AtomicU64,
    /// The smallest key of a timer in the store for which the owner defers no wake-up.
    store_prompt: AtomicU64,
    /// The number of timers in the store.
    stored: AtomicUsize,
    /// How many times a thread has taken a list that was not empty from the inbox.
    sweeps: AtomicU64,
    /// An upper bound of the cancelled timers whose updates are in the backlog.
    sweeping: AtomicUsize,
    /// Whether the backlog has updates: they were taken from the inbox and are not read yet.
    has_backlog: AtomicBool,
    inner: UnsafeCell<Inner<O>>,
    _line_of_the_rest: NewLine,
    /// The owner's last moves, one bit each: set if the move was to an earlier deadline. Only the
    /// owner reads and writes this word, so it belongs to no protocol, and loom need not check it.
    /// See [`expects_earlier`](Shard::expects_earlier).
    earlier: std::sync::atomic::AtomicU32,
    /// Whether the owner may defer wake-ups.
    is_deferring: bool,
    /// The moment until which the owner defers wake-ups, in ns. Written by the owner while it is
    /// awake.
    deferred: AtomicU64,
    waiters: Waiters,
    owner: O,
}

/// A field of this type has no size. The next field begins a cache line.
type NewLine = [CachePadded<()>; 0];

// SAFETY: a thread reaches `inner` only while it holds the lock, and all in `inner` is Send. The
// other fields are Sync.
unsafe impl<O: Owner> Sync for Shard<O> {}
// SAFETY: as above. The other fields are Send.
unsafe impl<O: Owner> Send for Shard<O> {}

impl<O: Owner> Shard<O> {
    /// Creates an empty shard for `owner`, whose owner is not watched.
    pub fn new(owner: O) -> Self {
        Self::with_alarm(owner, Alarm::off())
    }

    fn with_alarm(owner: O, alarm: Alarm) -> Self {
        Self {
            homes: CachePadded::new(HomeCount::new()),
            parker: CachePadded::new(Parker::new()),
            alarm: CachePadded::new(alarm),
            _line_of_pushers: [],
            inbox: Inbox::new(),
            inbox_next: AtomicU64::new(NEVER),
            unread: AtomicUsize::new(0),
            _line_under_the_lock: [],
            lock: TryLock::new(),
            store_next: AtomicU64::new(NEVER),
            store_soonest: AtomicU64::new(NEVER),
            store_prompt: AtomicU64::new(NEVER),
            stored: AtomicUsize::new(0),
            sweeps: AtomicU64::new(0),
            sweeping: AtomicUsize::new(0),
            has_backlog: AtomicBool::new(false),
            inner: UnsafeCell::new(Inner::new()),
            _line_of_the_rest: [],
            earlier: std::sync::atomic::AtomicU32::new(0),
            is_deferring: false,
            deferred: AtomicU64::new(0),
            waiters: Waiters::new(),
            owner,
        }
    }

    /// Replaces the store of the shard by an empty one of this kind. The shard has no timers yet,
    /// because a timer needs a reference to it.
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
        // SAFETY: no other thread has a reference to `self`, which is moved.
        let is_there = self
            .inner
            .with_mut(|inner| unsafe { (*inner).store.kind() == kind });
        if is_there {
            return self;
        }
        let is_deferring = self.is_deferring;
        let shard = Self {
            inner: UnsafeCell::new(Inner::with_store(kind)),
            ..self
        };
        match is_deferring {
            true => shard.deferring(),
            false => shard,
        }
    }

    /// Returns the worker that owns this shard.
    #[inline]
    pub fn owner(&self) -> &O {
        &self.owner
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Returns the worker's parked word.
    #[inline]
    pub fn parker(&self) -> &Parker {
        &self.parker
    }

    /// Returns the earliest moment, in ns, at which a timer of this shard may come due, or
    /// [`NEVER`] if there is none. The answer may be too early, and is never too late: a timer that
    /// was cancelled or moved later counts with its old deadline until a thread reads that update.
    pub fn next_deadline(&self) -> u64 {
        // The inbox's word first: a drainer lowers the store's word before it clears the inbox's
        // ("Published words" in `PROTOCOLS.md`).
        let inbox = self.inbox_next.load(Ordering::Acquire);
        inbox.min(self.store_next.load(Ordering::Acquire))
    }

    /// Returns the earliest moment, in ns, at which [`expire`](Shard::expire) may find a due timer.
    /// It is earlier than [`next_deadline`](Shard::next_deadline) if the next timer [may be
    /// late](crate::Options::tolerance). A hint, for an owner that is awake anyway.
    pub fn soonest(&self) -> u64 {
        let soonest = self.store_soonest.load(Ordering::Relaxed);
        self.next_deadline().min(soonest)
    }

    /// Returns whether the inbox or the backlog has updates that no thread has read.
    pub fn has_updates(&self) -> bool {
        self.has_backlog.load(Ordering::Acquire) || !self.inbox.is_empty()
    }

    /// Returns the number of timers in the store after its last change. It counts cancelled timers
    /// that are not swept yet, and does not count new timers in the inbox.
    pub fn stored(&self) -> usize {
        self.stored.load(Ordering::Relaxed)
    }

    /// Returns how many times a thread has taken updates from the inbox.
    pub fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::Relaxed)
    }

    /// Returns an upper bound of the timers that remote threads have cancelled and that still
    /// occupy the inbox or the store. Their payloads are gone. It is at most 64 or a quarter of the
    /// live timers, whichever is more, plus the timers that are cancelled while a thread holds the
    /// lock: at most twice in a row, or while the owner arms, moves or ends a timer.
    pub fn garbage(&self) -> usize {
        self.unread.load(Ordering::Relaxed) + self.sweeping.load(Ordering::Relaxed)
    }

    /// Runs `f` under the lock. If another thread has the lock, returns `None`, and leaves the mark
    /// that makes the holder read the inbox.
    #[inline]
    fn locked<R>(&self, f: impl FnOnce(&mut Inner<O>) -> R) -> Option<R> {
        self.lock.try_acquire().then(|| self.hold(f))
    }

    /// Runs `f` under the lock. While another thread has the lock, waits for it: that is for one
    /// batch.
    fn locked_in_turn<R>(&self, mut f: impl FnMut(&mut Inner<O>) -> R) -> R {
        let mut patience = Patience::default();
        loop {
            match self.locked(&mut f) {
                Some(result) => return result,
                None => patience.wait(),
            }
        }
    }

    /// Runs `f` under the lock, which the caller has taken, and releases it.
    #[inline]
    fn hold<R>(&self, f: impl FnOnce(&mut Inner<O>) -> R) -> R {
        let result = self.change(f);
        // A denied thread relies on the holder to read its update ("The try-lock").
        if self.lock.release() {
            self.drain_for_denied();
        }
        result
    }

    /// Runs `f` under the lock, which the caller has taken as the owner, and releases it. It reads
    /// the updates of denied threads before it sleeps.
    #[inline]
    fn hold_as_owner<R>(&self, f: impl FnOnce(&mut Inner<O>) -> R) -> R {
        let result = self.change(f);
        self.lock.release_as_owner();
        result
    }

    /// Runs `f` under the lock, which the caller has taken and releases after this.
    #[inline]
    fn change<R>(&self, f: impl FnOnce(&mut Inner<O>) -> R) -> R {
        let unlock = UnlockOnPanic(self);
        // SAFETY: we hold the lock.
        let result = self.inner.with_mut(|inner| unsafe {
            let result = f(&mut *inner);
            self.publish(&mut *inner);
            result
        });
        // The guard ends before the release: after the release another thread may hold the lock,
        // and the guard would release that thread's lock.
        mem::forget(unlock);
        result
    }

    /// Publishes the state of the store and of the backlog in the words that are read without the
    /// lock.
    #[inline]
    fn publish(&self, inner: &mut Inner<O>) {
        let seen = inner.seen();
        let (next, soonest) = inner.next(seen);
        self.publish_store(next, soonest, seen);
        self.store_prompt
            .store(inner.next_prompt(seen), Ordering::Release);
        self.has_backlog
            .store(!inner.backlog.is_empty(), Ordering::Release);
    }

    /// Publishes the state of the store.
    #[inline]
    fn publish_store(&self, next: u64, soonest: u64, seen: Seen) {
        self.store_next.store(next, Ordering::Release);
        self.store_soonest.store(soonest, Ordering::Relaxed);
        self.stored.store(seen.len, Ordering::Relaxed);
    }

    /// Publishes the state of the store if no timer has a tolerance or is strict, and the backlog
    /// has not changed. So no timer is prompt, before and after.
    #[inline]
    fn publish_exact(&self, inner: &Inner<O>, seen: Seen) {
        let next = inner.next_exact(seen);
        self.publish_store(next, next, seen);
    }

    /// Frees the memory of a store that is much too large: 1,024 timers or fewer are left, and they
    /// use an eighth of its room at most. Both must have been so at the last call, too. Returns
    /// whether the caller should call this again, some seconds later: no memory is freed before
    /// that. Any thread may call this.
    ///
    /// The call holds the lock for some tens of µs, while it moves the timers that are left, and
    /// for half a ms more for each million of timers that there once was room for. More than 1,024
    /// timers would take longer, so they stay where they are. If another thread has the lock, the
    /// call does nothing.
    pub fn shrink(&self) -> bool {
        let shrunk = self.locked(Inner::shrink);
        // The old store is dropped after the release: freeing large arrays takes the system some
        // time.
        shrunk.is_none_or(|(again, _outgrown)| again)
    }
}

/// Unlocks the shard if code under its lock panics. By the documented limits this happens when a
/// store is full, and then the panic leaves the store as it was.
///
/// The shard stays usable. Only safe code works on the data under the lock. So another panic may
/// leave wrong data, but never an invalid access.
struct UnlockOnPanic<'a, O: Owner>(&'a Shard<O>);

impl<O: Owner> Drop for UnlockOnPanic<'_, O> {
    #[cold]
    fn drop(&mut self) {
        let shard = self.0;
        // The published deadlines are lower bounds at any moment. But the inbox may have updates
        // that no thread has read, also from threads that were denied the lock. The owner reads
        // them, and publishes again.
        shard.has_backlog.store(true, Ordering::Release);
        let _denied = shard.lock.release();
        shard.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
