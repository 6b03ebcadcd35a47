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

/// Checks under loom that all uses of a counted value happen before its end. Outside of loom it is
/// empty.
///
/// The memory of the value is no object of loom's, so loom alone would not notice that a thread
/// gives up a reference without the order that the last one needs.
pub(crate) struct Life(#[cfg(loom)] UnsafeCell<()>);

impl Life {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self(
            #[cfg(loom)]
            UnsafeCell::new(()),
        )
    }

    /// Notes that the calling thread has used the value. A thread calls this before it gives up a
    /// reference.
    #[inline(always)]
    pub(crate) fn used(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
    }
}

#[cfg(loom)]
impl Drop for Life {
    fn drop(&mut self) {
        // A failed model unwinds, and a second panic would end the process without a message.
        if !std::thread::panicking() {
            self.0.with_mut(|_| ());
        }
    }
}

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
