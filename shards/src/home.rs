//! A node's reference to its home; and whoever else's wants one that is cheap to have and to give up.
//!
//! The shard counts them itself, beside `Arc`'s count, so that many can be had, or given up, by one operation
//! (see `spares.rs`): as long as there are any, they have one reference of `Arc`'s among them. Who makes the count
//! leave zero counts that one; who brings it back to zero has it to drop.
//!
//! Loom counts by `Arc` alone.

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

    /// How many references nodes and others have to a shard, or could have: spare ones are among them.
    pub(crate) struct Homes(AtomicUsize);

    impl Homes {
        pub(crate) fn new() -> Self {
            Self(AtomicUsize::new(0))
        }
    }

    impl<O: Owner> Shard<O> {
        /// How many references timers have to this shard: one each, as long as it has a handle, waits, is due or
        /// runs, or was cancelled and is not swept out yet; those that others have as a [`Home`]; and those that
        /// threads [keep](Shard::keep_spares).
        pub fn references(&self) -> usize {
            self.homes.0.load(Ordering::Relaxed)
        }
    }

    /// A counted reference to a shard, as timers have one: for what is made and dropped as often as they are, and
    /// belongs to the shard. On a thread that [keeps some](Shard::keep_spares) it costs no locked instruction.
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
    /// assert_eq!(home.stored(), 0, "it is still there");
    /// ```
    pub struct Home<O: Owner>(NonNull<Shard<O>>);

    // SAFETY: it is a shared reference to a shard, which is Sync, and whoever drops the last one drops the
    // shard, which is Send.
    unsafe impl<O: Owner> Send for Home<O> {}
    // SAFETY: as above.
    unsafe impl<O: Owner> Sync for Home<O> {}

    impl<O: Owner> Home<O> {
        /// A reference to this shard.
        #[inline]
        pub fn new(shard: &Arc<Shard<O>>) -> Self {
            if !spares::take(shard) {
                refer(shard, 1);
            }
            // SAFETY: Arc's pointers are not null.
            Self(unsafe { NonNull::new_unchecked(Arc::as_ptr(shard).cast_mut()) })
        }

        /// The shard's address, as `Arc` has it.
        #[inline]
        pub(crate) fn as_ptr(&self) -> *const Shard<O> {
            self.0.as_ptr()
        }

        /// The reference as the address of the shard.
        #[inline]
        pub fn into_raw(self) -> NonNull<Shard<O>> {
            ManuallyDrop::new(self).0
        }

        /// The reference again.
        ///
        /// # Safety
        ///
        /// `raw` is from [`into_raw`](Home::into_raw), each time that it is passed from another call of that.
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
            if !spares::keep(self) {
                // SAFETY: this was one of those counted, and is used no more.
                unsafe { give_up(self.as_ptr(), 1) };
            }
        }
    }

    /// Counts `count` more references, which are not zero: the caller's.
    #[inline]
    pub(crate) fn refer<O: Owner>(shard: &Arc<Shard<O>>, count: usize) {
        // Relaxed: a new reference is made from one that keeps the shard alive. Each is in a node, of which
        // there is no room for so many that the count overflows, or one of a few spare ones.
        if shard.homes.0.fetch_add(count, Ordering::Relaxed) == 0 {
            // The one of Arc's that all have. Before any of these is given up: who sees the zero again finds it.
            let _theirs = ManuallyDrop::new(shard.clone());
        }
    }

    /// Counts `count` more references than there are, one of which is the caller's.
    #[inline]
    pub(crate) fn refer_again<O: Owner>(home: &Home<O>, count: usize) {
        // Relaxed, as above. It is not zero, so there is one of Arc's.
        home.homes.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Gives up `count` references, which are not zero.
    ///
    /// # Safety
    ///
    /// The pointer is `Arc`'s, and the caller has so many of those that [`refer`] counted in that shard, and uses them
    /// no more.
    #[inline]
    pub(crate) unsafe fn give_up<O: Owner>(shard: *const Shard<O>, count: usize) {
        // SAFETY: until the count has been lowered, the shard is there.
        let homes = unsafe { &(*shard).homes };
        let before = homes.0.fetch_sub(count, Ordering::Release);
        if before == count {
            // All that was done by means of a reference comes before the shard's end, if this is it.
            fence(Ordering::Acquire);
            // SAFETY: who made the count leave zero has left one for who brings it back.
            drop(unsafe { Arc::from_raw(shard) });
        }
    }
}

#[cfg(loom)]
mod plain {
    use super::*;

    /// One reference to a shard.
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
