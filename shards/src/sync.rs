//! The primitives that this crate is built on: the standard library's, or loom's when the crate is
//! built with `--cfg loom`, or those of a simulated world (`--cfg tourbillon_sim`). Nothing else
//! here names any.

use std::sync::PoisonError;

#[cfg(loom)]
pub(crate) use loom::{
    alloc::{alloc, dealloc},
    cell::UnsafeCell,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
    thread_local,
};

#[cfg(not(loom))]
pub(crate) use self::plain::UnsafeCell;
#[cfg(not(any(loom, tourbillon_sim)))]
pub(crate) use std::{
    alloc::{alloc, dealloc},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
    thread_local,
};

#[cfg(tourbillon_sim)]
pub(crate) use crate::sim::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    yield_now,
};
#[cfg(tourbillon_sim)]
pub(crate) use std::{
    alloc::{alloc, dealloc},
    sync::Arc,
    thread_local,
};

/// `fence(SeqCst)`, for who has done a read-modify-write before, and between the two has read at
/// most.
///
/// On x86_64 each read-modify-write is such a fence, and loads keep their order: there this is for
/// the compiler alone. Not where something else than the processor runs it: a model, or a
/// simulation.
#[inline(always)]
pub(crate) fn fence_behind_change() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri, tourbillon_sim))))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri, tourbillon_sim)))))]
    fence(Ordering::SeqCst);
}

#[cfg(not(tourbillon_sim))]
pub(crate) use std::collections::hash_map::RandomState;
/// Not random: a simulation goes the same way each time.
#[cfg(tourbillon_sim)]
pub(crate) type RandomState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// Locks a mutex that no panic can leave in a bad state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(not(loom))]
mod plain {
    /// `std::cell::UnsafeCell` with the closures by which loom sees when an access begins and ends.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
