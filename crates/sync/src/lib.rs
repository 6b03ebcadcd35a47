#![doc = include_str!("../README.md")]

pub mod foreign;
mod patience;
mod per_process;
mod prefetch;
#[cfg(tourbillon_sim)]
pub mod sim;
mod type_name;

use std::sync::PoisonError;

pub use self::{patience::Patience, prefetch::prefetch, type_name::TypeName};

#[cfg(loom)]
pub use loom::{
    alloc::{alloc, dealloc},
    cell::UnsafeCell,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
};

#[cfg(not(loom))]
pub use self::plain::UnsafeCell;
#[cfg(not(any(loom, tourbillon_sim)))]
pub use std::{
    alloc::{alloc, dealloc},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
};

#[cfg(tourbillon_sim)]
pub use self::sim::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    yield_now,
};
#[cfg(tourbillon_sim)]
pub use std::{
    alloc::{alloc, dealloc},
    sync::Arc,
};

/// Only for [`thread_cell`].
#[cfg(loom)]
#[doc(hidden)]
pub use loom;

/// Declares a thread-local that begins with a constant. (loom's macro does not support `const`.)
#[macro_export]
macro_rules! thread_cell {
    (static $name:ident: $type:ty = $value:expr) => {
        #[cfg(not(loom))]
        std::thread_local!(static $name: $type = const { $value });
        #[cfg(loom)]
        $crate::loom::thread_local!(static $name: $type = $value);
    };
}

/// The calling thread has just changed a word by an atomic read-modify-write. Only an exchange
/// makes this value.
#[must_use]
pub struct Changed(());

impl Changed {
    /// Exchanges a pointer, from `current` to `new`, with AcqRel. Returns what is there if that is
    /// not `current`.
    #[inline(always)]
    pub fn exchange<T>(word: &AtomicPtr<T>, current: *mut T, new: *mut T) -> Result<Self, *mut T> {
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed)
            .map(|_| Self(()))
    }

    /// Begins the part before the fence, in which the thread may use `word` alone. The fence gives
    /// access to `rest`.
    #[inline(always)]
    pub fn before_fence<'a, T>(self, word: &'a AtomicU64, rest: &'a T) -> BeforeFence<'a, T> {
        BeforeFence { word, rest }
    }
}

/// The calling thread has changed a word by an atomic read-modify-write, and since then it has at
/// most read, or done another one.
///
/// That is what [`fence`](BeforeFence::fence) needs. A function whose only argument with shared
/// memory is this value cannot break it: it reaches one word, and that word by these methods alone.
/// A store in between does not compile.
#[must_use]
pub struct BeforeFence<'a, T> {
    word: &'a AtomicU64,
    rest: &'a T,
}

impl<'a, T> BeforeFence<'a, T> {
    /// Reads the word.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Lowers the word to `to`, if it is higher.
    #[inline(always)]
    pub fn lower(&self, to: u64) {
        self.word.fetch_min(to, Ordering::AcqRel);
    }

    /// Fences like `fence(SeqCst)`.
    ///
    /// On x86_64 each atomic read-modify-write is such a fence, and loads stay in order, so only
    /// the compiler has to be restrained. Models and simulations do not run on the processor's
    /// rules, and use the real fence.
    #[inline(always)]
    pub fn fence(self) -> &'a T {
        #[cfg(all(target_arch = "x86_64", not(any(loom, miri, tourbillon_sim))))]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri, tourbillon_sim)))))]
        fence(Ordering::SeqCst);
        self.rest
    }
}

#[cfg(not(tourbillon_sim))]
pub use std::collections::hash_map::RandomState;
/// The keys of hash maps. Not random, so that each run of a simulation is the same.
#[cfg(tourbillon_sim)]
pub type RandomState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// Locks a mutex. Ignores poisoning: no panic leaves the guarded data in a bad state.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks under loom that all uses of a counted value happen before its end. Outside of loom it is
/// empty.
///
/// The memory of the value is no object of loom's, so loom alone would not notice that a thread
/// gives up a reference without the order that the last one needs.
pub struct Life(#[cfg(loom)] UnsafeCell<()>);

impl Life {
    /// Creates the life of a value that begins now.
    #[inline(always)]
    #[allow(
        clippy::new_without_default,
        reason = "a life begins where its value is made; none is made by default"
    )]
    pub fn new() -> Self {
        Self(
            #[cfg(loom)]
            UnsafeCell::new(()),
        )
    }

    /// Notes that the calling thread has used the value. A thread calls this before it gives up a
    /// reference.
    #[inline(always)]
    pub fn used(&self) {
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
    /// [`std::cell::UnsafeCell`] behind closures, which tell loom when an access begins and ends.
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Creates a cell.
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer for reading.
        #[inline(always)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer for reading and writing.
        #[inline(always)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
