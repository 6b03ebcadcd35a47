//! What the structures need of threads: loom's if the compiler gets `--cfg loom`, and otherwise the
//! standard library's. No other file names either of them.

// Each package that copies this file uses other parts of it.
#![allow(dead_code, unused_imports)]

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
    },
    // loom has to be told that a thread waits for another. In loom, both functions tell it.
    thread::yield_now as spin_loop,
};

#[cfg(not(loom))]
pub use self::plain::UnsafeCell;
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
    },
};

#[cfg(not(loom))]
mod plain {
    /// The standard library's cell with the methods of loom's, which sees each access by them.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}
