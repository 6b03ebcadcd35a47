//! The primitives of a simulation (`--cfg tourbillon_sim`): the standard library's, each of whose accesses first
//! asks the simulated world who runs next.
//!
//! Of the threads that are registered there exactly one runs at a time, and another only takes its place at one of
//! these points. So memory is sequentially consistent here, whatever order is asked for: what orders are needed is
//! loom's to find out. A thread that is not registered, one that comes or goes, is let through.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{LockResult, OnceLock, PoisonError, TryLockError, TryLockResult},
};

/// The simulated world.
pub trait Hook: Sync {
    /// The calling thread is about to do what others can see: another may run before it does.
    fn step(&self);
    /// As [`step`](Hook::step), for a thread that can do nothing until others have.
    fn yield_now(&self);
    /// Waits until somebody calls [`wake`](Hook::wake) for the same address.
    fn wait(&self, address: usize);
    /// Lets those go on that wait for this address.
    fn wake(&self, address: usize);
    /// Whether an exchange that may fail for no reason does.
    fn fails(&self) -> bool;
}

static HOOK: OnceLock<&'static dyn Hook> = OnceLock::new();

/// Has all primitives ask this world, from now on.
pub fn install(hook: &'static dyn Hook) {
    let _ = HOOK.set(hook);
}

#[inline]
fn hook() -> Option<&'static dyn Hook> {
    HOOK.get().copied()
}

#[inline]
fn step() {
    if let Some(hook) = hook() {
        hook.step();
    }
}

/// See [`std::thread::yield_now`].
pub fn yield_now() {
    match hook() {
        Some(hook) => hook.yield_now(),
        None => std::thread::yield_now(),
    }
}

/// The atomics.
pub mod atomic {
    use std::sync::atomic as plain;
    pub use std::sync::atomic::Ordering;

    use super::{hook, step};

    /// See [`std::sync::atomic::fence`].
    pub fn fence(order: Ordering) {
        step();
        plain::fence(order);
    }

    macro_rules! common {
        ($name:ident, $value:ty $(, $t:ident)?) => {
            impl$(<$t>)? $name$(<$t>)? {
                /// A new one.
                pub const fn new(value: $value) -> Self {
                    Self(plain::$name::new(value))
                }

                /// Its value, which nobody else sees.
                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                /// Its value.
                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }

                /// See the standard library's.
                pub fn load(&self, order: Ordering) -> $value {
                    step();
                    self.0.load(order)
                }

                /// See the standard library's.
                pub fn store(&self, value: $value, order: Ordering) {
                    step();
                    self.0.store(value, order);
                }

                /// See the standard library's.
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    step();
                    self.0.swap(value, order)
                }

                /// See the standard library's.
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    step();
                    self.0.compare_exchange(current, new, success, failure)
                }

                /// See the standard library's. Fails for no reason now and then.
                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    step();
                    if hook().is_some_and(|hook| hook.fails()) {
                        return Err(self.0.load(failure));
                    }
                    self.0.compare_exchange(current, new, success, failure)
                }

                /// See the standard library's.
                pub fn fetch_update(
                    &self,
                    success: Ordering,
                    failure: Ordering,
                    mut f: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let mut last = self.load(failure);
                    while let Some(next) = f(last) {
                        match self.compare_exchange_weak(last, next, success, failure) {
                            Ok(last) => return Ok(last),
                            Err(now) => last = now,
                        }
                    }
                    Err(last)
                }
            }
        };
    }

    macro_rules! fetches {
        ($name:ident, $value:ty: $($fetch:ident)*) => {
            impl $name {$(
                /// See the standard library's.
                pub fn $fetch(&self, value: $value, order: Ordering) -> $value {
                    step();
                    self.0.$fetch(value, order)
                }
            )*}
        };
    }

    macro_rules! integers {
        ($($name:ident: $value:ty)*) => {$(
            /// See the standard library's.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name(plain::$name);
            common!($name, $value);
            fetches!($name, $value: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_min fetch_max);
        )*};
    }

    integers!(AtomicU8: u8 AtomicU16: u16 AtomicI32: i32 AtomicU32: u32 AtomicU64: u64 AtomicUsize: usize);

    /// See the standard library's.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct AtomicBool(plain::AtomicBool);
    common!(AtomicBool, bool);
    fetches!(AtomicBool, bool: fetch_and fetch_or fetch_xor);

    /// See the standard library's.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct AtomicPtr<T>(plain::AtomicPtr<T>);
    common!(AtomicPtr, *mut T, T);

    impl<T> Default for AtomicPtr<T> {
        fn default() -> Self {
            Self::new(std::ptr::null_mut())
        }
    }
}

/// A mutex, for which a thread waits in the simulated world.
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// What a [`Mutex`] guards.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// None: it is about to be dropped.
    guard: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A new one.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>() as usize
    }

    fn guard<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let guard = Some(guard);
        MutexGuard { mutex: self, guard }
    }

    /// See [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        step();
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(self.guard(guard)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Err(PoisonError::new(self.guard(poisoned.into_inner())));
                }
                Err(TryLockError::WouldBlock) => match hook() {
                    Some(hook) => hook.wait(self.address()),
                    None => std::thread::yield_now(),
                },
            }
        }
    }

    /// See [`std::sync::Mutex::try_lock`].
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        step();
        match self.0.try_lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(TryLockError::Poisoned(poisoned)) => {
                let guard = self.guard(poisoned.into_inner());
                Err(TryLockError::Poisoned(PoisonError::new(guard)))
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// See [`std::sync::Mutex::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }

    /// See [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// The mutex, which this unlocks without a step: for who waits for a condition from then on.
    pub fn unlock(mut self) -> &'a Mutex<T> {
        self.guard = None;
        if let Some(hook) = hook() {
            hook.wake(self.mutex.address());
        }
        self.mutex
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("it is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("it is locked")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.take().is_none() {
            return;
        }
        if let Some(hook) = hook() {
            hook.wake(self.mutex.address());
            hook.step();
        }
    }
}
