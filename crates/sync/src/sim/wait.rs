//! Condition variables, as in the standard library.

use std::{
    sync::{LockResult, PoisonError},
    time::{Duration, Instant},
};

use super::{Hook, MutexGuard, here};

/// See [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

/// See [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// See [`std::sync::WaitTimeoutResult::timed_out`].
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// See [`std::sync::Condvar::new`].
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Waits. Returns whether the wait ended before its time.
    fn sleep<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        length: Option<Duration>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        match here() {
            Some(hook) => self.sleep_simulated(hook, guard, length),
            None => self.sleep_really(guard, length),
        }
    }

    fn sleep_simulated<'a, T>(
        &self,
        hook: &dyn Hook,
        guard: MutexGuard<'a, T>,
        length: Option<Duration>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        hook.step();
        let nanos = length.map(|it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
        let (mutex, plain) = guard.into_parts();
        let mut plain = Some(plain);
        // No step may come between unlocking and waiting: a notification would be lost.
        let mut unlock = || plain = None;
        let is_woken = hook.sleep(self.address(), mutex.address(), &mut unlock, nanos);
        (mutex.lock(), is_woken)
    }

    fn sleep_really<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        length: Option<Duration>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        let (mutex, plain) = guard.into_parts();
        let Some(length) = length else {
            let plain = self.0.wait(plain).unwrap_or_else(PoisonError::into_inner);
            return (Ok(mutex.guard(plain)), true);
        };
        let waited = self.0.wait_timeout(plain, length);
        let (plain, ended) = waited.unwrap_or_else(PoisonError::into_inner);
        (Ok(mutex.guard(plain)), !ended.timed_out())
    }

    /// See [`std::sync::Condvar::wait`].
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.sleep(guard, None).0
    }

    /// See [`std::sync::Condvar::wait_timeout`].
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        length: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, is_woken) = self.sleep(guard, Some(length));
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        Ok((guard, WaitTimeoutResult(!is_woken)))
    }

    /// See [`std::sync::Condvar::wait_while`].
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// See [`std::sync::Condvar::wait_timeout_while`].
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        length: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let begin = Instant::now();
        loop {
            if !condition(&mut guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            let left = length.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            let slept = self.sleep(guard, Some(left)).0;
            guard = slept.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// See [`std::sync::Condvar::notify_one`].
    pub fn notify_one(&self) {
        if let Some(hook) = super::hook() {
            hook.notify(self.address(), false);
        }
        self.0.notify_one();
    }

    /// See [`std::sync::Condvar::notify_all`].
    pub fn notify_all(&self) {
        if let Some(hook) = super::hook() {
            hook.notify(self.address(), true);
        }
        self.0.notify_all();
    }
}
