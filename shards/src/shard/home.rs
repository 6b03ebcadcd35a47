//! Counted references to the owning shard, for nodes and other short-lived values of a shard, and
//! the cache that a thread may have of them.
//!
//! **The count.** The shard counts these references itself, beside `Arc`'s count, so that a thread
//! can take or give up many of them by one operation. As long as the count is not zero, all of them
//! together have one reference of `Arc`'s. The thread that makes the count leave zero adds that
//! one, and the thread that brings it back to zero drops it.
//!
//! **The cache.** Making or dropping a [`Home`] costs an atomic read-modify-write on a cache line
//! that is shared by all threads which arm timers on the shard. A thread with a [`Spares`] guard
//! avoids this. It has a stock of references, and adds or gives up 64 of them at a time. The stock
//! lasts only as long as the guard. A reference to a shard keeps the shard's owner alive, with all
//! that it has (file descriptors, for example), so other threads keep a stock only while they arm
//! [many](crate::NewTimers) timers.
//!
//! The proofs are in "Lifetimes" of `PROTOCOLS.md`.

use std::{
    cell::Cell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{self, NonNull, null},
};

use tourbillon_sync::{Arc, AtomicUsize, Life, Ordering, thread_cell};

use crate::{owner::Owner, shard::Shard};

/// Count of all [`Home`]s of a shard, and of the spare references that threads keep.
pub(crate) struct HomeCount(AtomicUsize, Life);

impl HomeCount {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0), Life::new())
    }
}

impl<O: Owner> Shard<O> {
    /// Returns how many counted references to this shard exist, apart from `Arc`'s own.
    ///
    /// Each timer has one as long as it has a handle, waits, is due or runs, or was cancelled
    /// and is not removed from the store yet. So has each other [`Home`], and each reference
    /// that a thread [keeps spare](Spares::new).
    pub fn references(&self) -> usize {
        self.homes.0.load(Ordering::Relaxed)
    }
}

/// Counted reference to a shard, for values that are made and dropped as often as timers and
/// belong to the shard.
///
/// Timers use it as well. On a thread that [keeps spare references](Spares::new), making
/// and dropping one needs no atomic read-modify-write.
///
/// ```
/// # use std::sync::Arc;
/// # use tourbillon_shards::{Home, Owner, Shard};
/// # struct Loop;
/// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
/// let shard = Arc::new(Shard::new(Loop));
/// let home = Home::new(&shard);
/// assert_eq!(shard.references(), 1);
/// drop(shard);
/// assert_eq!(home.stored(), 0, "the shard is still alive");
/// ```
pub struct Home<O: Owner>(NonNull<Shard<O>>);

// SAFETY: it is a shared reference to a shard, which is Sync. The thread that drops the last
// one drops the shard, which is Send.
unsafe impl<O: Owner> Send for Home<O> {}
// SAFETY: as above.
unsafe impl<O: Owner> Sync for Home<O> {}

impl<O: Owner> Home<O> {
    /// Makes a reference to `shard`.
    #[inline]
    pub fn new(shard: &Arc<Shard<O>>) -> Self {
        // A reference from the stock of this thread is counted already.
        if !take_spare(shard, || refer(shard, BATCH)) {
            refer(shard, 1);
        }
        // SAFETY: `Arc::as_ptr` never returns null.
        Self(unsafe { NonNull::new_unchecked(Arc::as_ptr(shard).cast_mut()) })
    }

    /// Returns the address of the shard, as `Arc::as_ptr` does.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const Shard<O> {
        self.0.as_ptr()
    }

    /// Turns the reference into the address of the shard. The reference stays counted.
    #[inline]
    pub fn into_raw(self) -> NonNull<Shard<O>> {
        ManuallyDrop::new(self).0
    }

    /// Turns an address back into the reference.
    ///
    /// # Safety
    ///
    /// `raw` is from [`into_raw`](Home::into_raw). Each call of that permits one call of this.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<Shard<O>>) -> Self {
        Self(raw)
    }
}

impl<O: Owner> Clone for Home<O> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed, as in `refer`. The count is not zero, so the shared reference of `Arc`'s exists.
        let refer_again = |count| _ = self.homes.0.fetch_add(count, Ordering::Relaxed);
        if !take_spare(self, || refer_again(BATCH)) {
            refer_again(1);
        }
        Self(self.0)
    }
}

impl<O: Owner> Deref for Home<O> {
    type Target = Shard<O>;

    #[inline]
    fn deref(&self) -> &Shard<O> {
        // SAFETY: the count keeps the shard alive.
        unsafe { self.0.as_ref() }
    }
}

impl<O: Owner> Drop for Home<O> {
    #[inline]
    fn drop(&mut self) {
        // The stock of this thread keeps the reference if it can.
        if !keep_spare(self) {
            // SAFETY: this reference was counted, and is not used again.
            unsafe { give_up(self.as_ptr(), 1) };
        }
    }
}

/// Adds `count` references, which must not be zero. They belong to the caller.
#[inline]
fn refer<O: Owner>(shard: &Arc<Shard<O>>, count: usize) {
    // Relaxed: the new references are made from one that keeps the shard alive. The count
    // cannot overflow: each reference is in some allocation, or is one of a few spare ones.
    if shard.homes.0.fetch_add(count, Ordering::Relaxed) == 0 {
        // Adds the reference of `Arc`'s that all of them share. This happens before the caller
        // gives up any of them, so the thread that brings the count back to zero finds it.
        let _shared = ManuallyDrop::new(shard.clone());
    }
}

/// Gives up `count` references, which must not be zero.
///
/// # Safety
///
/// `shard` comes from `Arc::as_ptr`. The caller has `count` of the references that [`refer`]
/// counted in that shard, and does not use them again.
#[inline]
unsafe fn give_up<O: Owner>(shard: *const Shard<O>, count: usize) {
    // SAFETY: the references keep the shard alive until the count is lowered.
    let homes = unsafe { &(*shard).homes };
    homes.1.used();
    let before = homes.0.fetch_sub(count, Ordering::Release);
    if before == count {
        // All uses of the shard by means of a reference happen before its end, if this is the
        // end. A load does what a fence would, and ThreadSanitizer knows only loads.
        homes.0.load(Ordering::Acquire);
        // SAFETY: the thread that made the count leave zero left one reference of `Arc`'s for
        // the thread that brings it back.
        drop(unsafe { Arc::from_raw(shard) });
    }
}

debug!(Home, |home| home.0);

/// Number of references that are added, or given up, at once.
const BATCH: usize = if cfg!(loom) { 2 } else { 64 };
/// Largest number of references in stock.
const MOST: usize = 2 * BATCH;

/// Stock of one thread.
struct Stock {
    /// Address of the shard, or null if the thread has no guard. While it is set, the [`Spares`]
    /// guard keeps the shard alive, so no other value gets this address.
    of: Cell<*const ()>,
    /// Number of counted references that belong to this thread, and are in no [`Home`].
    count: Cell<usize>,
}

// The stock has no destructor, so it exists until the very end of the thread.
thread_cell!(static STOCK: Stock = Stock::none());

impl Stock {
    const fn none() -> Self {
        Self {
            of: Cell::new(null()),
            count: Cell::new(0),
        }
    }

    /// Returns whether this is a stock for `shard`.
    #[inline]
    fn is_of<O: Owner>(&self, shard: &Shard<O>) -> bool {
        ptr::eq(self.of.get(), ptr::from_ref(shard).cast())
    }
}

/// Takes a reference out of the stock. If the stock is empty, `add` counts a batch first. Returns
/// false if this thread has no stock for this shard.
#[inline]
fn take_spare<O: Owner>(shard: &Shard<O>, add: impl FnOnce()) -> bool {
    STOCK.with(|stock| {
        if !stock.is_of(shard) {
            return false;
        }
        let mut count = stock.count.get();
        if count == 0 {
            add();
            count = BATCH;
        }
        stock.count.set(count - 1);
        true
    })
}

/// Puts the caller's reference into the stock. Returns false if this thread has no stock for this
/// shard; then the reference still belongs to the caller.
#[inline]
fn keep_spare<O: Owner>(home: &Home<O>) -> bool {
    STOCK.with(|stock| {
        if !stock.is_of(&**home) {
            return false;
        }
        let mut count = stock.count.get() + 1;
        // Keep one batch, so that a thread that takes and keeps in turn rarely touches the shared
        // count.
        if count > MOST {
            count -= BATCH;
            // SAFETY: the stock has these references, and does not count them from here on.
            unsafe { give_up(home.as_ptr(), BATCH) };
        }
        stock.count.set(count);
        true
    })
}

/// Guard that lets the calling thread keep a stock of references to a shard.
#[must_use = "the stock of references lasts only as long as this guard"]
pub struct Spares<O: Owner> {
    pub(crate) shard: Arc<Shard<O>>,
    /// Whether this guard has set up the stock.
    keeps: bool,
    /// Not `Send`: the stock belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl<O: Owner> Spares<O> {
    /// Lets the calling thread keep a stock of references to `shard`, until the guard is dropped.
    ///
    /// Each timer has such a reference. With a stock, a thread saves two atomic read-modify-writes
    /// for each timer that it arms and frees, and for each [`Home`] that it makes and drops. This
    /// is meant for the owner, as long as it owns the shard.
    ///
    /// A thread can have a stock for one shard only. If it has one for another shard, this has no
    /// effect.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tourbillon_shards::{Owner, Shard, Spares, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    /// let shard = Arc::new(Shard::new(Loop));
    /// let spares = Spares::new(&shard);
    /// for i in 0..1_000 {
    ///     Timer::once(&shard, i, i, || ()).cancel();
    /// }
    /// shard.close();
    /// drop(spares);
    /// assert_eq!(Arc::strong_count(&shard), 1);
    /// ```
    pub fn new(shard: &Arc<Shard<O>>) -> Self {
        let keeps = STOCK.with(|stock| {
            let is_free = stock.of.get().is_null();
            if is_free {
                stock.of.set(Arc::as_ptr(shard).cast());
            }
            is_free
        });
        Self {
            shard: shard.clone(),
            keeps,
            _thread: PhantomData,
        }
    }
}

impl<O: Owner> Drop for Spares<O> {
    fn drop(&mut self) {
        if !self.keeps {
            return;
        }
        // Empty the stock before giving the references up: the last one may drop the shard.
        let count = STOCK.with(|stock| {
            stock.of.set(null());
            stock.count.take()
        });
        if count > 0 {
            // SAFETY: these references were in the stock, which is empty from here on.
            unsafe { give_up(Arc::as_ptr(&self.shard), count) };
        }
    }
}

debug!(Spares, |spares| spares.keeps);
