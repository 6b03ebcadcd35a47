//! Condition variables and threads of the simulation, with the interface of the standard library.

use std::{sync::LockResult, time::Duration};

pub use tourbillon_sync::sim::{Mutex, MutexGuard, atomic};

use super::world::{NEVER, Wait, World, with};

fn world() -> &'static World {
    with(|world| world).expect("only threads of the world wait in it")
}

fn until(state: &super::world::State, length: Duration) -> u64 {
    let nanos = u64::try_from(length.as_nanos()).unwrap_or(NEVER);
    state.now.saturating_add(nanos)
}

/// See [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(
    /// A byte, so that each condition variable has its own address.
    #[allow(dead_code, reason = "its address is what counts")]
    u8,
);

/// See [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Waits. Returns whether a notification ended the wait.
    fn sleep<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        length: Option<Duration>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        let world = world();
        world.point();
        // No point may come between unlocking and waiting: a notification would be lost.
        let mutex = guard.unlock();
        let mut state = world.lock();
        let chance = state.plan.spurious;
        let woken = if state.happens(chance.saturating_mul(50)) {
            state.faults.spurious += 1;
            // Release the state before locking the mutex, which is a point.
            drop(state);
            true
        } else {
            let until = length.map_or(NEVER, |length| until(&state, length));
            world.wait(state, Wait::Condition(self.address()), until)
        };
        (mutex.lock(), woken)
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.sleep(guard, None).0
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        length: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, woken) = self.sleep(guard, Some(length));
        let guard = guard.unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok((guard, WaitTimeoutResult(!woken)))
    }

    pub(crate) fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        length: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let end = until(&world().lock(), length);
        loop {
            if !condition(&mut guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            let left = end.saturating_sub(world().lock().now);
            if left == 0 {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            let slept = self.sleep(guard, Some(Duration::from_nanos(left))).0;
            guard = slept.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    pub(crate) fn notify_one(&self) {
        let Some(world) = with(|world| world) else {
            return;
        };
        world.point();
        let mut state = world.lock();
        let wait = Wait::Condition(self.address());
        let waiting = state.waiting(wait);
        if !waiting.is_empty() {
            // A condition variable promises nothing about which thread it wakes.
            let which = state.rng.usize(..waiting.len());
            state.wake_one(waiting[which]);
        }
    }

    pub(crate) fn notify_all(&self) {
        let Some(world) = with(|world| world) else {
            return;
        };
        world.point();
        let address = self.address();
        world.lock().wake(|wait| wait == Wait::Condition(address));
    }
}

/// Simulated threads. See [`std::thread`].
pub mod thread {
    use std::{fmt, io, time::Duration};

    pub use tourbillon_sync::sim::yield_now;

    use super::{
        super::world::{NEVER, Run, Wait, me, run_thread},
        until, world,
    };

    /// See [`std::thread::Thread`].
    #[derive(Clone, Debug)]
    pub struct Thread(usize);

    impl Thread {
        /// See [`std::thread::Thread::id`].
        pub fn id(&self) -> usize {
            self.0
        }

        /// See [`std::thread::Thread::unpark`].
        pub fn unpark(&self) {
            let Some(world) = super::with(|world| world) else {
                return;
            };
            world.point();
            let mut state = world.lock();
            // If the thread does not wait yet, the token ends its next `park` at once.
            match state.threads[self.0].run {
                Run::Waits(Wait::Unpark, _) => state.wake_one(self.0),
                _ => state.threads[self.0].token = true,
            }
        }
    }

    /// See [`std::thread::current`].
    pub fn current() -> Thread {
        Thread(me().expect("it is a thread of the world"))
    }

    /// See [`std::thread::park`].
    pub fn park() {
        let world = world();
        world.point();
        let mut state = world.lock();
        let me = me().expect("it is a thread of the world");
        let chance = state.plan.spurious;
        // `park` may return without a reason, and callers must cope with that.
        if std::mem::take(&mut state.threads[me].token) || state.happens(chance) {
            return;
        }
        world.wait(state, Wait::Unpark, NEVER);
    }

    /// See [`std::thread::sleep`].
    pub fn sleep(length: Duration) {
        let world = world();
        world.point();
        let state = world.lock();
        let until = until(&state, length);
        world.wait(state, Wait::Time, until);
    }

    /// See [`std::thread::JoinHandle`].
    pub struct JoinHandle<T> {
        number: usize,
        thread: std::thread::JoinHandle<std::thread::Result<T>>,
    }

    impl<T> JoinHandle<T> {
        /// See [`std::thread::JoinHandle::join`].
        pub fn join(self) -> std::thread::Result<T> {
            let world = world();
            world.point();
            let state = world.lock();
            if state.threads[self.number].run != Run::Over {
                world.wait(state, Wait::End(self.number), NEVER);
            } else {
                drop(state);
            }
            // The thread has passed its last point, so this join is short and real.
            self.thread.join()?
        }
    }

    impl<T> fmt::Debug for JoinHandle<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("JoinHandle").field(&self.number).finish()
        }
    }

    /// See [`std::thread::Builder`].
    #[derive(Debug, Default)]
    pub struct Builder {
        name: Option<String>,
    }

    impl Builder {
        /// See [`std::thread::Builder::new`].
        pub fn new() -> Self {
            Self::default()
        }

        /// See [`std::thread::Builder::name`].
        pub fn name(mut self, name: String) -> Self {
            self.name = Some(name);
            self
        }

        /// See [`std::thread::Builder::stack_size`]. All simulated threads have the same size.
        pub fn stack_size(self, _: usize) -> Self {
            self
        }

        /// See [`std::thread::Builder::spawn`]. The plan may refuse helpers and blocking threads.
        pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
        where
            F: FnOnce() -> T + Send + 'static,
            T: Send + 'static,
        {
            let name = self.name.unwrap_or_else(|| "a thread".into());
            let world = world();
            world.point();
            let mut state = world.lock();
            // The runtime must cope without these threads, while it cannot run without workers.
            let is_optional = name.contains("-helper-") || name.contains("-blocking-");
            let chance = state.plan.refuse;
            if is_optional && state.happens(chance) {
                state.faults.refused += 1;
                let now = state.now;
                state.faults.refuse_first.get_or_insert(now);
                state.note(|| format!("{name} is refused"));
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            drop(state);
            let number = world.add_thread(name);
            let thread = std::thread::Builder::new()
                .stack_size(512 * 1024)
                .spawn(move || run_thread(number, f))?;
            Ok(JoinHandle { number, thread })
        }
    }

    /// See [`std::thread::spawn`].
    pub fn spawn<F, T>(f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Builder::new().spawn(f).expect("the system has a thread")
    }
}
