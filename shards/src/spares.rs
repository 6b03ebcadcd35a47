//! Spare references to a shard, kept by a thread that arms timers there and frees them, and spawns tasks.
//!
//! To count a reference, and to give one up, is a locked instruction each, on a line that all share who arm timers on the
//! shard. A thread with a [`Spares`] does neither: it has some in stock, which it buys, and gives up, by the dozen.
//!
//! They are kept as long as that guard lives, and no longer: a reference to a shard keeps its owner, and all
//! that it has (a worker's descriptors, say). That is why threads that only pass by have none. The stock itself is a
//! thread-local without a destructor, which is there until the thread's very end.

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

/// So many are bought, or given up, at once.
const BATCH: usize = 64;
/// No more are kept.
const MOST: usize = 2 * BATCH;

/// What a thread has in stock.
struct Stock {
    /// The shard's address, or null: nothing is kept. As long as it is not, a [`Spares`] refers to the shard, so
    /// that nothing else comes to have this address.
    of: Cell<*const ()>,
    /// How many, of those that the shard counts, are this thread's and no node's.
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
    #[inline]
    fn is_of<O: Owner>(&self, shard: &Shard<O>) -> bool {
        ptr::eq(self.of.get(), ptr::from_ref(shard).cast())
    }
}

/// Takes a spare reference; false if this thread keeps none of this shard's.
#[inline]
pub(crate) fn take<O: Owner>(shard: &Arc<Shard<O>>) -> bool {
    take_or(shard, || refer(shard, BATCH))
}

/// The same, by who has a reference already.
#[inline]
pub(crate) fn take_again<O: Owner>(home: &Home<O>) -> bool {
    take_or(home, || refer_again(home, BATCH))
}

#[inline]
fn take_or<O: Owner>(shard: &Shard<O>, buy: impl FnOnce()) -> bool {
    STOCK.with(|stock| {
        if !stock.is_of(shard) {
            return false;
        }
        let mut count = stock.count.get();
        if count == 0 {
            buy();
            count = BATCH;
        }
        stock.count.set(count - 1);
        true
    })
}

/// Keeps the caller's reference, which is used no more; false if this thread keeps none of this shard's, and the
/// caller has it still.
#[inline]
pub(crate) fn keep<O: Owner>(home: &Home<O>) -> bool {
    STOCK.with(|stock| {
        if !stock.is_of(&**home) {
            return false;
        }
        let mut count = stock.count.get() + 1;
        if count > MOST {
            count -= BATCH;
            // SAFETY: so many of the stock's are given up, and count as its no more.
            unsafe { give_up(home.as_ptr(), BATCH) };
        }
        stock.count.set(count);
        true
    })
}

/// As long as this lives, the thread has [references to a shard in stock](Shard::keep_spares).
#[must_use = "spare references are kept as long as this lives"]
pub struct Spares<O: Owner> {
    shard: Arc<Shard<O>>,
    /// Whether the stock is this one's.
    keeps: bool,
    /// The stock is the thread's.
    _thread: PhantomData<*const ()>,
}

impl<O: Owner> Shard<O> {
    /// Lets the calling thread keep some of the references that timers have to this shard, for the next that it
    /// arms: until what is returned is dropped. It saves two locked instructions for each timer that is armed and freed by this
    /// thread, and for each [`Home`] that comes and goes. For the owner, as long as it is that.
    ///
    /// A thread has room for those of one shard. If it keeps another's already, this has no effect.
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
        let count = STOCK.with(|stock| {
            stock.of.set(null());
            stock.count.take()
        });
        if count > 0 {
            // SAFETY: they were the stock's, which has none now.
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
