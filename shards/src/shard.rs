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
    claim::{NEVER, Outcome},
    due::Due,
    ending::end,
    inbox::Inbox,
    inner::Inner,
    lock::TryLock,
    node::{Location, NodeRef},
    orphans::Orphans,
    owner::Owner,
    park::Parker,
    search::Searchers,
    store::StoreKind,
    sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell, fence, fence_behind_change},
    taken::Taken,
    watch::Watch,
    watchers::Watchers,
};

/// How much is done under one hold of the lock by a thread that does not own the shard.
const BATCH: usize = if cfg!(loom) { 1 } else { 256 };

/// How much of the inbox the owner reads before it looks at what is due: some tens of µs.
const OWNER_BATCH: usize = 1024;

/// So many unread cancellations are let be, however few timers there are.
const GARBAGE_FLOOR: usize = if cfg!(loom) { 1 } else { 64 };

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

/// What [`Shard::park`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Whether the worker slept (or at least called `sleep`).
    pub slept: bool,
    /// Whether the worker was woken to search, and counts as a searcher.
    pub searching: bool,
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
    /// let shard = Arc::new(Shard::new(Loop).with_store(StoreKind::Lanes));
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
        if self.lock.release() {
            self.look_for_the_denied();
        }
        mem::forget(unlock);
        result
    }

    /// Who was denied while the lock was held left its news in the inbox.
    #[cold]
    fn look_for_the_denied(&self) {
        while self.lock.try_acquire() {
            // SAFETY: we hold the lock.
            self.inner.with_mut(|inner| unsafe {
                self.drain(&mut *inner, BATCH);
                self.publish(&*inner);
            });
            if !self.lock.release() {
                return;
            }
        }
    }

    /// Writes the words that are read without the lock.
    #[inline]
    fn publish(&self, inner: &Inner<O>) {
        let (next, soonest) = inner.next();
        self.store_next.store(next, Ordering::Release);
        self.store_soonest.store(soonest, Ordering::Relaxed);
        self.stored.store(inner.stored(), Ordering::Relaxed);
        self.backlogged
            .store(!inner.backlog.is_empty(), Ordering::Release);
    }

    /// Wakes the owner if it sleeps past `deadline`. `fence` is one, or what does for one behind what was changed before.
    #[inline]
    fn wake_before(&self, deadline: u64, fence: impl FnOnce()) -> bool {
        fence();
        let wake = self.parker.claim_if_later(deadline);
        if wake {
            self.owner.wake();
        }
        wake
    }

    /// Wakes the owner if it sleeps, whatever for.
    pub fn wake(&self) -> bool {
        self.wake_before(0, full_fence)
    }

    /// Tells the owner of a node that is armed, but does not arrive as [new](Shard::arrive_new).
    pub(crate) fn armed(&self, node: &NodeRef<O>) {
        self.owner.armed(node.vtable.kind, self.owner.is_current());
    }

    /// Brings home a node whose carrier has let go of it (its location is `None`).
    pub(crate) fn arrive(&self, node: &NodeRef<O>) {
        let here = self.owner.is_current();
        if self.store(here, || node.clone()).is_none() {
            self.tell(node);
            self.announce(node);
        }
    }

    /// The same for a node that nobody but the caller knows, who has two references to it. It is armed by this, for this
    /// deadline, and has no options.
    #[inline]
    pub(crate) fn arrive_new(&self, node: &NodeRef<O>, carried: NodeRef<O>, deadline: u64) {
        debug_assert!(node.extras().is_none(), "its key is its deadline");
        let kind = node.vtable.kind;
        if !self.owner.is_current() {
            // For the counters alone, and no look that a model has to take.
            let quiet = !cfg!(loom) && !self.parker.sleeps_past(deadline);
            if quiet {
                self.owner.armed_quietly(kind);
            } else {
                self.owner.armed(kind, false);
            }
            return self.send_new(carried, deadline, quiet);
        }
        self.owner.armed(kind, true);
        if self.lock.try_acquire() {
            let refused = self.hold(|inner| {
                if inner.closed {
                    return Some(carried);
                }
                inner.insert_new(carried, deadline);
                None
            });
            return self.arrived(refused);
        }
        self.send_new(carried, deadline, false);
    }

    /// The owner has put a node into its store, or was refused, and has it still.
    #[inline]
    fn arrived(&self, refused: Option<NodeRef<O>>) {
        match refused {
            None => self.lower_alarm(self.store_next.load(Ordering::Relaxed)),
            Some(node) => self.refuse(&node),
        }
    }

    /// Puts a node that nobody but the caller knows into the inbox, and tells of it. `counted`: the owner has counted that
    /// it was not woken.
    #[inline]
    fn send_new(&self, node: NodeRef<O>, deadline: u64, counted: bool) {
        if let Err(node) = self.inbox.push_new(node) {
            return self.refuse(&node);
        }
        self.announce_pushed(deadline, counted);
    }

    /// Puts an arriving node into the store, if the caller owns that (`here`) and is let in; or ends it, if the shard
    /// is closed.
    fn store(&self, here: bool, node: impl FnOnce() -> NodeRef<O>) -> Option<()> {
        if !here {
            return None;
        }
        // What is over meanwhile is given back, to be let go of outside the lock.
        let (refused, _over) = self.locked(|inner| {
            let node = node();
            if inner.closed {
                (Some(node), None)
            } else {
                (None, inner.read(node))
            }
        })?;
        self.arrived(refused);
        Some(())
    }

    /// Ends a node that came after the shard was closed.
    #[cold]
    fn refuse(&self, node: &NodeRef<O>) {
        if let Some(notice) = end(node, Outcome::Shutdown) {
            self.owner.deliver(notice);
        }
    }

    /// Puts a node whose claim word has changed into the inbox, if it does not stand there already;
    /// who drains it then finds whether anybody carries it, and if not, carries it from then on.
    ///
    /// A closed shard has no use for it, and ends it; then this is false. Who closed it may have
    /// seen the node in a deque, or nowhere.
    fn tell(&self, node: &NodeRef<O>) -> bool {
        let told = self.inbox.push(node);
        if !told {
            self.refuse(node);
        }
        told
    }

    /// Publishes the deadline of a node that was pushed, and wakes the owner if it would sleep past
    /// it.
    ///
    /// The word is read after the push, and once more after the fence: who made the deadline earlier
    /// and found the node queued before it was pushed relied on that. The owner that it woke found
    /// nothing.
    fn announce(&self, node: &NodeRef<O>) {
        let mut announced = u64::MAX;
        let next = || node.claim.load().deadline().map(|at| node.key(at));
        while let Some(deadline) = next().filter(|&at| at < announced) {
            self.inbox_next.fetch_min(deadline, Ordering::AcqRel);
            self.see_to(deadline, false, full_fence);
            announced = deadline;
        }
    }

    /// The same for what nobody but the caller knew until it pushed it.
    ///
    /// Most pushes find the word low enough, and leave it alone. Who has not pushed may not rely on what it
    /// finds there: that may have been taken away by a drainer that takes the node later.
    #[inline]
    fn announce_pushed(&self, deadline: u64, counted: bool) {
        if !looks_at_the_deadline() || deadline < self.inbox_next.load(Ordering::Acquire) {
            self.inbox_next.fetch_min(deadline, Ordering::AcqRel);
        }
        self.see_to(deadline, counted, fence_behind_change);
    }

    /// Wakes the owner if it would sleep past a deadline that was published; if it is awake, sees to its alarm.
    #[inline]
    fn see_to(&self, deadline: u64, counted: bool, fence: impl FnOnce()) {
        if !self.wake_before(deadline, fence) {
            if !counted {
                self.owner.wake_skipped();
            }
            // One that sleeps looks at the deadlines when it wakes, and sees to its alarm.
            if !self.watch.is_off() && self.parker.is_awake() {
                self.lower_alarm(deadline);
            }
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
        if self.hear(node) {
            self.lower_alarm(self.store_next.load(Ordering::Relaxed));
        } else {
            self.tell(node);
            self.announce(node);
        }
    }

    /// The node is over, for good; its payload is gone already. Answers the reference of its store, if that was ours
    /// to take it out of.
    #[inline]
    pub(crate) fn hear_gone(&self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        if self.owner.is_current() && self.lock.try_acquire() {
            let mut heard = true;
            let carried = self.hold(|inner| match node.location() {
                Location::Slot(slot) => Some(inner.take_over(node, slot)),
                Location::Deque => None,
                Location::None => {
                    heard = false;
                    None
                }
            });
            if heard {
                return carried;
            }
        }
        self.tell_gone(node);
        None
    }

    /// The same where that has to go through the inbox, where the node may stand.
    fn tell_gone(&self, node: &NodeRef<O>) {
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
                if !inner.backlog.is_empty() {
                    let sweeps = self.sweeps.load(Ordering::Relaxed);
                    self.sweeps.store(sweeps + 1, Ordering::Relaxed);
                }
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

    /// Announces that the owner sleeps, and answers until when.
    fn announce_sleep(&self) -> u64 {
        let until = self.next_deadline();
        self.parker.announce(until);
        until
    }

    /// Whether nothing has come, since it was announced, that would have to end the sleep.
    fn may_sleep(&self, until: u64) -> bool {
        !self.has_news() && self.next_deadline() >= until
    }

    /// Announces that the owner is about to sleep, and answers until when, in ns: it has to sleep
    /// until then ([`NEVER`]: without an end), or until [`Owner::wake`], and to call
    /// [`resume`](Shard::resume) when it is awake. `None` if there is something to
    /// [`expire`](Shard::expire) first; then it is awake still.
    ///
    /// What else would have to end the sleep has to be looked at between this and the sleep; who brings
    /// it calls [`wake`](Shard::wake).
    ///
    /// For an event loop of one thread. [`park`](Shard::park) is for those that steal from each
    /// other.
    ///
    /// ```
    /// # use std::{sync::Arc, thread, time::{Duration, Instant}};
    /// # use tourbillon_shards::{NEVER, Owner, Shard, Timer};
    /// struct Loop(thread::Thread);
    ///
    /// impl Owner for Loop {
    ///     fn wake(&self) { self.0.unpark(); }
    ///     fn is_current(&self) -> bool { thread::current().id() == self.0.id() }
    /// }
    ///
    /// let shard = Arc::new(Shard::new(Loop(thread::current())));
    /// let start = Instant::now();
    /// let now = || start.elapsed().as_nanos() as u64;
    /// let timer = Timer::once(&shard, 1_000_000, 1_000_000, || ());
    /// while timer.deadline().is_some() {
    ///     let mut due = Vec::new();
    ///     shard.expire(now(), usize::MAX, &mut due);
    ///     for timer in due {
    ///         timer.run(now);
    ///     }
    ///     if let Some(until) = shard.sleep_until() {
    ///         if until != NEVER {
    ///             thread::park_timeout(Duration::from_nanos(until.saturating_sub(now())));
    ///         }
    ///         shard.resume();
    ///     }
    /// }
    /// shard.close();
    /// ```
    pub fn sleep_until(&self) -> Option<u64> {
        let until = self.announce_sleep();
        if self.may_sleep(until) {
            return Some(until);
        }
        self.resume();
        None
    }

    /// The owner is awake again after [`sleep_until`](Shard::sleep_until).
    pub fn resume(&self) {
        let searches = self.parker.resume();
        debug_assert!(!searches, "nobody is woken to search without `Searchers`");
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
        // In this order, and in the reverse afterwards: whoever counts as parked can be claimed.
        let until = self.announce_sleep();
        searchers.park(searching);
        let work = work();
        let sleeps = self.may_sleep(until) && !work;
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

#[inline(always)]
fn full_fence() {
    fence(Ordering::SeqCst);
}

#[inline(always)]
fn looks_at_the_deadline() -> bool {
    #[cfg(loom)]
    return crate::node::model::LOOKS_AT_THE_DEADLINE.get();
    #[cfg(not(loom))]
    true
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
