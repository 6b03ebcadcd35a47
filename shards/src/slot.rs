//! What a worker runs next, where thieves can reach it.
//!
//! The owner alone fills the slot; all that a thief ever does is to empty a full one. So a slot that the
//! owner sees empty stays as it is until the owner fills it, and a plain store does for that. To empty
//! it takes a read-modify-write, since two may want the same; who sees it empty goes without.

use std::{fmt, marker::PhantomData, ptr, ptr::NonNull};

use crate::sync::{AtomicPtr, Ordering};

/// What can be kept as one pointer.
///
/// # Safety
///
/// What `from_raw` makes of a pointer that `into_raw` gave is the value that was given for it, on
/// whatever thread.
pub unsafe trait RawPointer: Send + Sized {
    /// The value as a pointer, which owns what the value owned.
    fn into_raw(self) -> NonNull<()>;

    /// The value again.
    ///
    /// # Safety
    ///
    /// `raw` is from [`into_raw`](RawPointer::into_raw) of this type, and is passed once.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
}

// SAFETY: the two are those of `Box`, and a Box of what is Send is Send.
unsafe impl<T: Send> RawPointer for Box<T> {
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self)).cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller has it from `into_raw`, and passes it once.
        unsafe { Box::from_raw(raw.cast().as_ptr()) }
    }
}

/// A slot for what a worker runs next: its owner, a thread, puts it there and takes it, and any other
/// thread may steal it.
///
/// It costs the owner a look and a plain store to fill an empty slot, a look to find it empty, and one
/// read-modify-write to take what is there, or to put something in its place.
///
/// ```
/// use tourbillon_shards::NextSlot;
///
/// let slot = NextSlot::default();
/// assert_eq!(slot.put(Box::new(1)), None);
/// assert_eq!(slot.put(Box::new(2)), Some(Box::new(1)));
/// let stolen = std::thread::scope(|scope| scope.spawn(|| slot.steal()).join().unwrap());
/// assert_eq!(stolen, Some(Box::new(2)));
/// assert_eq!(slot.take(), None);
/// ```
///
/// What stands in the slot when it is dropped is dropped with it.
pub struct NextSlot<T: RawPointer> {
    /// Null if it is empty; otherwise it owns a `T`.
    word: AtomicPtr<()>,
    owns: PhantomData<T>,
}

// SAFETY: through a shared slot values go from thread to thread, each to one, and they are Send. No
// two threads refer to one value.
unsafe impl<T: RawPointer> Sync for NextSlot<T> {}

impl<T: RawPointer> NextSlot<T> {
    /// Puts `next` into the slot, and answers what stood there.
    ///
    /// For the owner. If two threads put at once, one of the values may be lost: it is leaked.
    #[inline]
    pub fn put(&self, next: T) -> Option<T> {
        let next = next.into_raw().as_ptr();
        if self.is_empty() {
            // Nobody else fills it, so there is nothing to be overwritten.
            self.word.store(next, Ordering::Release);
            return None;
        }
        Self::own(self.word.swap(next, Ordering::AcqRel))
    }

    /// Takes what stands in the slot. For the owner.
    #[inline]
    pub fn take(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        Self::own(self.word.swap(ptr::null_mut(), Ordering::Acquire))
    }

    /// Takes what stands in the slot, for any thread but the owner.
    ///
    /// A thief may find nothing because it came too early to see what the owner has put there, or because
    /// the owner is at the slot this moment.
    pub fn steal(&self) -> Option<T> {
        let next = self.word.load(Ordering::Relaxed);
        if next.is_null() {
            return None;
        }
        // No swap: that could write into an empty slot. Which one it is that `next` points to by now does
        // not matter, since nobody has looked at it: it is what stands there.
        self.word
            .compare_exchange(next, ptr::null_mut(), Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .and_then(Self::own)
    }

    /// Whether the slot looks empty. The owner can rely on that it is; one that looks full may be robbed
    /// this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.word.load(Ordering::Relaxed).is_null()
    }

    /// What was taken out of the slot.
    #[inline]
    fn own(word: *mut ()) -> Option<T> {
        // SAFETY: it was put there by `into_raw`, and each time that it is put there it is taken out once.
        NonNull::new(word).map(|raw| unsafe { T::from_raw(raw) })
    }
}

impl<T: RawPointer> Default for NextSlot<T> {
    /// An empty slot.
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
