//! The synchronization primitives of this crate: those of the standard library, of loom with `--cfg
//! loom`, or of the simulation with `--cfg tourbillon_sim`. No other file names them directly.

#[cfg(loom)]
pub(crate) use loom::{
    alloc::{alloc, dealloc},
    cell::UnsafeCell,
    sync::atomic::{AtomicUsize, Ordering},
};

#[cfg(not(loom))]
pub(crate) use self::plain::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::alloc::{alloc, dealloc};
#[cfg(not(any(loom, tourbillon_sim)))]
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(tourbillon_sim)]
pub(crate) use tourbillon_shards::sim::atomic::{AtomicUsize, Ordering};

#[cfg(not(loom))]
mod plain {
    /// `std::cell::UnsafeCell` behind closures, which tell loom when an access begins and ends.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
