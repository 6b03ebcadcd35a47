//! Counted references to the owning shard, for nodes and other short-lived values of a shard.
//!
//! The shard counts these references itself, beside `Arc`'s count, so that a thread can take or
//! give up many of them by one operation (see `spares.rs`). As long as the count is not zero, all
//! of them together have one reference of `Arc`'s. The thread that makes the count leave zero adds
//! that one, and the thread that brings it back to zero drops it. The proof is in "Lifetimes" of
//! `PROTOCOLS.md`.
//!
//! Under loom, each reference is one of `Arc`'s.

use std::ops::Deref;

use crate::{owner::Owner, shard::Shard, sync::Arc};

#[cfg(not(loom))]
pub use self::counted::Home;
#[cfg(not(loom))]
pub(crate) use self::counted::{Homes, give_up, refer, refer_again};
#[cfg(loom)]
pub(crate) use self::plain::Home;

impl<O: Owner> std::fmt::Debug for Home<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Home")
            .field(&std::ptr::from_ref(&**self))
            .finish()
    }
}

#[cfg(not(loom))]
mod counted {
    use std::{mem::ManuallyDrop, ptr::NonNull};

    use super::*;
    use crate::{
        spares,
        sync::{AtomicUsize, Ordering, fence},
    };

    /// Count of all [`Home`]s of a shard, and of the spare references that threads keep.
    pub(crate) struct Homes(AtomicUsize);

    impl Homes {
        pub(crate) fn new() -> Self {
            Self(AtomicUsize::new(0))
        }
    }

    impl<O: Owner> Shard<O> {
        /// Returns how many counted references to this shard exist, apart from `Arc`'s own.
        ///
        /// Each timer has one as long as it has a handle, waits, is due or runs, or was cancelled
        /// and is not removed from the store yet. So has each other [`Home`], and each reference
        /// that a thread [keeps spare](Shard::keep_spares).
        pub fn references(&self) -> usize {
            self.homes.0.load(Ordering::Relaxed)
        }
    }

    /// Counted reference to a shard, for values that are made and dropped as often as timers and
    /// belong to the shard.
    ///
    /// Timers use it as well. On a thread that [keeps spare references](Shard::keep_spares), making
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
            if !spares::take(shard) {
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
            if !spares::take_again(self) {
                refer_again(self, 1);
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
            if !spares::keep(self) {
                // SAFETY: this reference was counted, and is not used again.
                unsafe { give_up(self.as_ptr(), 1) };
            }
        }
    }

    /// Adds `count` references, which must not be zero. They belong to the caller.
    #[inline]
    pub(crate) fn refer<O: Owner>(shard: &Arc<Shard<O>>, count: usize) {
        // Relaxed: the new references are made from one that keeps the shard alive. The count
        // cannot overflow: each reference is in some allocation, or is one of a few spare ones.
        if shard.homes.0.fetch_add(count, Ordering::Relaxed) == 0 {
            // Adds the reference of `Arc`'s that all of them share. This happens before the caller
            // gives up any of them, so the thread that brings the count back to zero finds it.
            let _shared = ManuallyDrop::new(shard.clone());
        }
    }

    /// Adds `count` references. The caller already has one, so the count is not zero.
    #[inline]
    pub(crate) fn refer_again<O: Owner>(home: &Home<O>, count: usize) {
        // Relaxed, as in `refer`. The count is not zero, so the shared reference of `Arc`'s exists.
        home.homes.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Gives up `count` references, which must not be zero.
    ///
    /// # Safety
    ///
    /// `shard` comes from `Arc::as_ptr`. The caller has `count` of the references that [`refer`]
    /// counted in that shard, and does not use them again.
    #[inline]
    pub(crate) unsafe fn give_up<O: Owner>(shard: *const Shard<O>, count: usize) {
        // SAFETY: the references keep the shard alive until the count is lowered.
        let homes = unsafe { &(*shard).homes };
        let before = homes.0.fetch_sub(count, Ordering::Release);
        if before == count {
            // All uses of the shard by means of a reference happen before its end, if this is the
            // end.
            fence(Ordering::Acquire);
            // SAFETY: the thread that made the count leave zero left one reference of `Arc`'s for
            // the thread that brings it back.
            drop(unsafe { Arc::from_raw(shard) });
        }
    }
}

#[cfg(loom)]
mod plain {
    use super::*;

    /// Reference to a shard.
    pub(crate) struct Home<O: Owner>(Arc<Shard<O>>);

    impl<O: Owner> Home<O> {
        pub(crate) fn new(shard: &Arc<Shard<O>>) -> Self {
            Self(shard.clone())
        }
    }

    impl<O: Owner> Deref for Home<O> {
        type Target = Shard<O>;

        fn deref(&self) -> &Shard<O> {
            &self.0
        }
    }
}
