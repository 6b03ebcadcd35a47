//! The next slot: the task that a worker runs next, where thieves can reach it.
//!
//! Only the owner fills the slot. A thief only empties a full slot. So a slot that the owner finds
//! empty stays empty until the owner fills it, and a plain store is enough for that. To empty the
//! slot takes a read-modify-write, since two threads may want the same value. A thread that finds
//! the slot empty leaves it. See "The next slot" in `PROTOCOLS.md`.

use std::{fmt, marker::PhantomData, ptr, ptr::NonNull};

use tourbillon_sync::{AtomicPtr, Ordering};

/// A type whose values can be stored as one pointer.
///
/// # Safety
///
/// `from_raw` must return the value for which `into_raw` returned the pointer, on any thread.
pub unsafe trait RawPointer: Send + Sized {
    /// Turns the value into a pointer, which owns what the value owned.
    fn into_raw(self) -> NonNull<()>;

    /// Turns the pointer back into the value.
    ///
    /// # Safety
    ///
    /// `raw` must be a result of [`into_raw`](RawPointer::into_raw) of this type, and each result
    /// may be passed once.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
}

// SAFETY: the two methods use those of `Box`, and a `Box` of a Send value is Send.
unsafe impl<T: Send> RawPointer for Box<T> {
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self)).cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller has `raw` from `into_raw`, and passes it once.
        unsafe { Box::from_raw(raw.cast().as_ptr()) }
    }
}

/// A slot for the value that a worker runs next. Its owner, one thread, puts a value there and
/// takes it. Any other thread may steal it.
///
/// The owner pays a load and a store to fill an empty slot, a load to find the slot empty, and a
/// read-modify-write to take or replace a value.
///
/// ```
/// use tourbillon_sched::NextSlot;
///
/// let slot = NextSlot::default();
/// assert_eq!(slot.put(Box::new(1)), None);
/// assert_eq!(slot.put(Box::new(2)), Some(Box::new(1)));
/// let stolen = std::thread::scope(|scope| scope.spawn(|| slot.steal()).join().unwrap());
/// assert_eq!(stolen, Some(Box::new(2)));
/// assert_eq!(slot.take(), None);
/// ```
///
/// A value that is in the slot when the slot is dropped is dropped with it.
pub struct NextSlot<T: RawPointer> {
    /// Null if the slot is empty. Otherwise the pointer owns a `T`.
    word: AtomicPtr<()>,
    owns: PhantomData<T>,
}

// SAFETY: a shared slot passes values from thread to thread, each to one thread, and they are Send.
// No two threads refer to one value.
unsafe impl<T: RawPointer> Sync for NextSlot<T> {}

impl<T: RawPointer> NextSlot<T> {
    /// Puts `next` into the slot, and returns the value that was there. For the owner.
    ///
    /// If two threads call this at once, one of the values may be leaked.
    #[inline]
    pub fn put(&self, next: T) -> Option<T> {
        let next = next.into_raw().as_ptr();
        if self.is_empty() {
            // Only the owner fills the slot, so the store overwrites no value.
            self.word.store(next, Ordering::Release);
            return None;
        }
        Self::own(self.word.swap(next, Ordering::AcqRel))
    }

    /// Takes the value out of the slot. For the owner.
    #[inline]
    pub fn take(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        Self::own(self.word.swap(ptr::null_mut(), Ordering::Acquire))
    }

    /// Takes the value out of the slot, for any thread but the owner.
    ///
    /// A thief may find nothing although the owner has put a value there: it does not see the value
    /// yet, or the owner changes the slot at this moment.
    #[inline]
    pub fn steal(&self) -> Option<T> {
        let next = self.word.load(Ordering::Relaxed);
        if next.is_null() {
            return None;
        }
        // Not a swap: a swap could write into an empty slot. The owner may have replaced the value
        // since the load, and put another one at the same address. That does no harm: the thief has
        // not read through `next`, and gets the value that is in the slot.
        self.word
            .compare_exchange(next, ptr::null_mut(), Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .and_then(Self::own)
    }

    /// Returns whether the slot is empty. For the owner an empty slot stays empty. A thief may
    /// empty a full slot at any moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.word.load(Ordering::Relaxed).is_null()
    }

    /// Turns a word that was taken out of the slot into its value.
    #[inline]
    fn own(word: *mut ()) -> Option<T> {
        // SAFETY: `put` has stored the result of `into_raw`, and each stored word is taken out
        // once.
        NonNull::new(word).map(|raw| unsafe { T::from_raw(raw) })
    }
}

impl<T: RawPointer> Default for NextSlot<T> {
    /// Creates an empty slot.
    fn default() -> Self {
        Self {
            word: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }
}

impl<T: RawPointer> fmt::Debug for NextSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextSlot")
            .field("is_empty", &self.is_empty())
            .finish()
    }
}

impl<T: RawPointer> Drop for NextSlot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
