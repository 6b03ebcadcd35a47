//! Synchronization primitives for simulations (`--cfg tourbillon_sim`): those of the standard
//! library, which ask the simulator before each access which thread runs next.
//!
//! Exactly one of the registered threads runs at a time, and another one takes over only at such an
//! access. So memory is sequentially consistent here, whatever order the code asks for; loom checks
//! the orders. A thread that is not registered, or is about to start or end, is not scheduled.

mod neglect;
mod process;
pub mod thread;
mod wait;

use std::{
    fmt,
    ops::{Deref, DerefMut},
    ptr,
    sync::{LockResult, OnceLock, PoisonError, TryLockError, TryLockResult},
};

pub use self::{
    neglect::{Neglected, Probe, watch},
    process::PerProcess,
    wait::{Condvar, WaitTimeoutResult},
};

/// Interface of the simulator.
pub trait Hook: Sync {
    /// Called before the calling thread does something that other threads can see. The simulator
    /// may let another thread run first.
    fn step(&self);
    /// Called when the calling thread can make no progress until other threads have run.
    fn yield_now(&self);
    /// Blocks until a thread calls [`wake`](Hook::wake) for the same address.
    fn wait(&self, address: usize);
    /// Wakes all threads that wait for this address.
    fn wake(&self, address: usize);
    /// Returns whether a weak compare-exchange fails spuriously this time.
    fn fails(&self) -> bool;
    /// Returns whether the calling thread is simulated.
    fn has_me(&self) -> bool;
    /// Calls `unlock`, which unlocks the mutex at the address `mutex`, and waits at a condition
    /// variable for at most `nanos`. There is no step in between. Returns whether the wait ended
    /// early, by a notification or for no reason.
    fn sleep(
        &self,
        condition: usize,
        mutex: usize,
        unlock: &mut dyn FnMut(),
        nanos: Option<u64>,
    ) -> bool;
    /// Ends the wait of one thread at a condition variable, or of all.
    fn notify(&self, address: usize, all: bool);
    /// Called before a thread of this name starts. Returns whether it may.
    fn starts(&self, name: &str) -> bool;
    /// Returns whether a call of `park` returns for no reason this time.
    fn unparks(&self) -> bool;
    /// Returns a random number of the seed, or `None` to a thread that is not simulated.
    fn random(&self) -> Option<u64>;
    /// Has the simulator list neglected work.
    fn watch(&self, probe: Probe);
    /// Returns the value that the process of the calling thread has in place of the `static` at
    /// this address, and calls `make` if it has none yet. `None`: it has that of the real process.
    fn own(&self, address: usize, make: &mut dyn FnMut() -> *const ()) -> Option<*const ()>;
}

static HOOK: OnceLock<&'static dyn Hook> = OnceLock::new();
/// The same, for those who must pass no step. A simulation makes one of each atomic access.
static PLAIN: atomic::Plain = atomic::Plain::new(ptr::null_mut());

/// Installs the simulator for all primitives. Later calls have no effect.
pub fn install(hook: &'static dyn Hook) {
    if HOOK.set(hook).is_ok() {
        PLAIN.store(Box::into_raw(Box::new(hook)), atomic::Ordering::Release);
    }
}

/// Returns the simulator, if the calling thread is simulated. This is no step.
fn here_without_a_step() -> Option<&'static dyn Hook> {
    // SAFETY: the pointer is null, or that of a value which is never freed. It changes once, before
    // the first simulated thread runs; only such a thread uses it.
    let hook = unsafe { PLAIN.as_ptr().read_volatile().as_ref() };
    hook.copied().filter(|hook| hook.has_me())
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

/// Passes a step.
pub fn point() {
    step();
}

/// Returns a random number: of the seed, on a simulated thread.
pub fn random() -> u64 {
    let drawn = hook().and_then(Hook::random);
    drawn.unwrap_or_else(|| {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(())
    })
}

/// Returns the simulator, if the calling thread is simulated.
fn here() -> Option<&'static dyn Hook> {
    hook().filter(|hook| hook.has_me())
}

/// Yields, as [`std::thread::yield_now`] does.
pub fn yield_now() {
    match hook() {
        Some(hook) => hook.yield_now(),
        None => std::thread::yield_now(),
    }
}

/// Atomic types of the simulation.
pub mod atomic {
    use std::sync::atomic as plain;
    pub use std::sync::atomic::Ordering;

    pub(super) type Plain = plain::AtomicPtr<&'static dyn super::Hook>;

    use super::{hook, step};

    /// Fences, as [`std::sync::atomic::fence`] does.
    pub fn fence(order: Ordering) {
        step();
        plain::fence(order);
    }

    macro_rules! common {
        ($name:ident, $value:ty $(, $t:ident)?) => {
            impl$(<$t>)? $name$(<$t>)? {
                /// Creates an atomic.
                pub const fn new(value: $value) -> Self {
                    Self(plain::$name::new(value))
                }

                /// Returns a mutable reference to the value.
                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                /// Returns the value.
                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }

                /// As in the standard library, after a step of the simulation.
                pub fn load(&self, order: Ordering) -> $value {
                    step();
                    self.0.load(order)
                }

                /// As in the standard library, after a step of the simulation.
                pub fn store(&self, value: $value, order: Ordering) {
                    step();
                    self.0.store(value, order);
                }

                /// As in the standard library, after a step of the simulation.
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    step();
                    self.0.swap(value, order)
                }

                /// As in the standard library, after a step of the simulation.
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

                /// As in the standard library. Fails spuriously now and then.
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

                /// As in the standard library, after a step of the simulation.
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
                /// As in the standard library, after a step of the simulation.
                pub fn $fetch(&self, value: $value, order: Ordering) -> $value {
                    step();
                    self.0.$fetch(value, order)
                }
            )*}
        };
    }

    macro_rules! integers {
        ($($name:ident: $value:ty)*) => {$(
            /// As in the standard library, after a step of the simulation.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name(plain::$name);
            common!($name, $value);
            fetches!(
                $name,
                $value: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_min fetch_max
            );
        )*};
    }

    integers!(
        AtomicU8: u8 AtomicU16: u16 AtomicI32: i32
        AtomicU32: u32 AtomicU64: u64 AtomicUsize: usize
    );

    /// As in the standard library, after a step of the simulation.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct AtomicBool(plain::AtomicBool);
    common!(AtomicBool, bool);
    fetches!(AtomicBool, bool: fetch_and fetch_or fetch_xor);

    /// As in the standard library, after a step of the simulation.
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

/// Mutex whose waiting threads are blocked in the simulation.
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// Guard of a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` while the guard is dropped.
    guard: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Creates a mutex.
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

    /// Locks the mutex, as [`std::sync::Mutex::lock`] does.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        step();
        // Any atomic may be a step. None may come between a failed attempt and the wait.
        let here = here();
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(self.guard(guard)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Err(PoisonError::new(self.guard(poisoned.into_inner())));
                }
                // The thread that unlocks wakes this one. Then the lock may be taken again, so try
                // again.
                Err(TryLockError::WouldBlock) => match here {
                    Some(hook) => hook.wait(self.address()),
                    None => std::thread::yield_now(),
                },
            }
        }
    }

    /// Tries to lock the mutex, as [`std::sync::Mutex::try_lock`] does.
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

    /// Returns the value, as [`std::sync::Mutex::into_inner`] does.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }

    /// Returns a mutable reference to the value, as [`std::sync::Mutex::get_mut`] does.
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
    /// Gives the parts to a thread that waits for a condition variable.
    fn into_parts(mut self) -> (&'a Mutex<T>, std::sync::MutexGuard<'a, T>) {
        let guard = self.guard.take().expect("the lock is held");
        (self.mutex, guard)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("the lock is held")
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
