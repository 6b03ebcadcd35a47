//! Per-thread cache of counted references to one shard.
//!
//! Making or dropping a [`Home`] costs an atomic read-modify-write on a cache line that is shared
//! by all threads which arm timers on the shard. A thread with a [`Spares`] guard avoids this. It
//! has a stock of references, and adds or gives up 64 of them at a time.
//!
//! The stock lasts only as long as the guard. A reference to a shard keeps the shard's owner alive,
//! with all that it has (file descriptors, for example), so threads that only pass by keep no
//! stock. The stock is a thread-local without a destructor, so it exists until the very end of the
//! thread. See "Lifetimes" in `PROTOCOLS.md`.

use std::{
    cell::Cell,
    marker::PhantomData,
    ptr::{self, null},
};

use crate::{
    home::{Home, give_up, refer, refer_again},
    owner::Owner,
    shard::Shard,
    sync::Arc,
};

/// Number of references that are added, or given up, at once.
const BATCH: usize = 64;
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

thread_local! {
    static STOCK: Stock = const {
        Stock {
            of: Cell::new(null()),
            count: Cell::new(0),
        }
    };
}

impl Stock {
    /// Returns whether this is a stock for `shard`.
    #[inline]
    fn is_of<O: Owner>(&self, shard: &Shard<O>) -> bool {
        ptr::eq(self.of.get(), ptr::from_ref(shard).cast())
    }
}

/// Takes a reference out of the stock. Returns false if this thread has no stock for this shard.
#[inline]
pub(crate) fn take<O: Owner>(shard: &Arc<Shard<O>>) -> bool {
    take_or(shard, || refer(shard, BATCH))
}

/// Takes a reference out of the stock for a caller that has another one. Returns false if this
/// thread has no stock for this shard.
#[inline]
pub(crate) fn take_again<O: Owner>(home: &Home<O>) -> bool {
    take_or(home, || refer_again(home, BATCH))
}

/// Takes a reference out of the stock. If the stock is empty, `add` counts a batch first.
#[inline]
fn take_or<O: Owner>(shard: &Shard<O>, add: impl FnOnce()) -> bool {
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
pub(crate) fn keep<O: Owner>(home: &Home<O>) -> bool {
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

/// Guard that lets the thread keep a [stock of references](Shard::keep_spares) to a shard.
#[must_use = "the stock of references lasts only as long as this guard"]
pub struct Spares<O: Owner> {
    shard: Arc<Shard<O>>,
    /// Whether this guard has set up the stock.
    keeps: bool,
    /// Not `Send`: the stock belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl<O: Owner> Shard<O> {
    /// Lets the calling thread keep a stock of references to this shard, until the guard is
    /// dropped.
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
    /// # use tourbillon_shards::{Owner, Shard, Timer};
    /// # struct Loop;
    /// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
    /// let shard = Arc::new(Shard::new(Loop));
    /// let spares = shard.keep_spares();
    /// for i in 0..1_000 {
    ///     Timer::once(&shard, i, i, || ()).cancel();
    /// }
    /// shard.close();
    /// drop(spares);
    /// assert_eq!(Arc::strong_count(&shard), 1);
    /// ```
    pub fn keep_spares(self: &Arc<Self>) -> Spares<O> {
        let keeps = STOCK.with(|stock| {
            let is_free = stock.of.get().is_null();
            if is_free {
                stock.of.set(Arc::as_ptr(self).cast());
            }
            is_free
        });
        Spares {
            shard: self.clone(),
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

impl<O: Owner> std::fmt::Debug for Spares<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spares")
            .field("keeps", &self.keeps)
            .finish()
    }
}
